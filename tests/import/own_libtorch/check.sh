#!/usr/bin/env bash
# A LibTorch that the monorepo has already, by its label. ours is not fetched.
#
# ACME_TORCH=FOLDER: an unpacked LibTorch; otherwise the one that another consumer fetches.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

if [[ -z ${ACME_TORCH-} ]]; then
  fetch_elsewhere own_packages libtorch
  ACME_TORCH=$IMPORT_CACHE/output/own_packages/external/libtorch/tree/torch
fi
echo "common --repo_env=ACME_TORCH=$(rc_word "$ACME_TORCH")" >>"$scratch/bazelrc"

build_all
tests_pass
two_ranks_save @cohort//tools/launch
fetched_only bazel_skylib com_google_absl com_google_googletest gloo nlohmann_json platforms rules_cc
