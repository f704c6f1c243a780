#!/usr/bin/env bash
# The LibTorch of Debian's package libtorch-dev: for the processor, linked with Debian's Gloo, under /usr among everything else.
set -euo pipefail
export COHORT_ROOT_PACKAGES=${COHORT_ROOT_PACKAGES:-libtorch-dev} COHORT_BAZEL=${COHORT_BAZEL:-provision}
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

build_all
tests_pass
two_ranks_save @cohort//tools/launch
fetched_only bazel_skylib com_google_absl com_google_googletest gloo libtorch nlohmann_json platforms rules_cc
[[ ! -e $output_base/external/libtorch/wheels ]] || die "a wheel was fetched."
