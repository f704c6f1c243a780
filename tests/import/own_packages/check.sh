#!/usr/bin/env bash
# A WORKSPACE with packages and headers that have the same names as cohort's.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"
# shellcheck source=tests/import/public_targets.sh
source "$import_folder/public_targets.sh"

public_is_what_is_documented //app:save
build_all
tests_pass
two_ranks_save @cohort//tools/launch
fetched_only bazel_skylib com_google_absl com_google_googletest gloo libtorch nlohmann_json platforms rules_cc xz
