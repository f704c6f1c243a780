#!/usr/bin/env bash
# cohort's sources in a sub-folder of the monorepo.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

# A folder that stays the same, so that the output base fits it in the next call.
readonly monorepo=$IMPORT_CACHE/vendored
rm -rf "$monorepo"
mkdir -p "$monorepo/third_party/cohort"
cp -rL . "$monorepo"
tar -C "$checkout" --exclude=./.git --exclude='./bazel-*' --exclude=./tests/import -cf - . | tar -C "$monorepo/third_party/cohort" -xf -
cd "$monorepo"

build_all
tests_pass
two_ranks_save @cohort//tools/launch
fetched_only bazel_skylib com_google_absl com_google_googletest gloo libtorch nlohmann_json platforms rules_cc
