#!/usr/bin/env bash
# --config=clang refuses an #include whose target is not a direct dependency. Run by hand, and by .ci/extended, because a
# test of Bazel's cannot ask Bazel to compile something that must not compile.
#
# usage: layering_check_detects.sh [BAZEL_FLAG...]      (where bazelw finds clang; see `./bazelw help-bazelw`)
set -euo pipefail
unset CDPATH # cd would look there first
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly subject=//tests/headers/testdata:undeclared_dependency
die() {
  echo "FAILED: $*" >&2
  exit 1
}

# The subject alone, without compiling what it depends on.
build() { ./bazelw build --config=clang --output_groups=archive "$@" "$subject"; }

# What it says must be a matter of layers: without the check, the subject is good.
build --features=-layering_check "$@" || die "$subject does not compile at all"

! output=$(build "$@" 2>&1) ||
  die "$subject uses a header of //runtime:rank_info without depending on it, and --config=clang builds it"
grep -q "undeclared_dependency does not depend on a module exporting 'cohort/runtime/rank_info.h'" <<< "$output" ||
  die "--config=clang refuses $subject for another reason: $output"
echo "layering_check detects"
