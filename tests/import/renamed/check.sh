#!/usr/bin/env bash
# Under another name, with other names for what both need, and with repositories of its own that have the names of cohort's.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

build_all
tests_pass
two_ranks_save @acme_cohort//tools/launch
fetched_only bazel_skylib nlohmann_json platforms rules_cc
external=$output_base/external
for name in abseil-cpp acme_gloo acme_libtorch googletest; do
  [[ -e $external/$name ]] || die "@$name was not used."
done
