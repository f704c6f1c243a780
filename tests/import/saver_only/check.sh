#!/usr/bin/env bash
# Saves through cohort without LibTorch: nothing of it is fetched.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

# From nothing: an output base and a disk cache that are empty. From the disk cache: only that of the output base.
from_nothing() {
  local since=$SECONDS
  remove_output_base
  bazel cquery --output=starlark --starlark:expr='str(target.label)' \
    'filter("com_google_(absl|googletest)//", kind("cc_library rule", deps(//...)))' 2>"$scratch/query" | sort -u >"$scratch/others" ||
    die "$(cat "$scratch/query")"
  timed "Abseil and GoogleTest from source" bazel build --target_pattern_file="$scratch/others"
  tests_pass
  say "$((SECONDS - since)) s from nothing to a green test"
}

from_disk_cache() {
  local since=$SECONDS
  remove_output_base
  build_all
  tests_pass
  say "$((SECONDS - since)) s from the disk cache to a green test"
}

# For the rest as well: Bazel leaves in a disk cache what it does not need at once, and misses it if the cache is changed for another.
mkdir "$scratch/disk"
echo "build --disk_cache=$(rc_word "$scratch/disk")" >>"$scratch/bazelrc"
from_nothing
from_disk_cache

saves_with() { # NUMBER OF RANKS
  bazel run --run_under="@cohort//tools/launch --nproc-per-node=$1" //app:save -- "$scratch/file" >"$scratch/log" 2>&1
}

saves_with 1 || die "a world of one does not save: $(cat "$scratch/log")"
[[ $(cat "$scratch/file") == 'saved by an importer' ]] || die "$scratch/file does not hold what was saved."
say "a world of one saved under the launcher"

! saves_with 2 || die "two processes that cannot meet saved."
grep -q 'links no backend.*@cohort//runtime:init_process_group' "$scratch/log" ||
  die "two processes that cannot meet are not told which target to add: $(cat "$scratch/log")"
say "two processes without LibTorch are told which target to add"

fetched_only bazel_skylib com_google_absl com_google_googletest nlohmann_json platforms rules_cc
