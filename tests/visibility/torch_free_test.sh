#!/usr/bin/env bash
# Nothing that the named targets depend on comes from LibTorch: neither a build nor a process of theirs pays for it.
#
# usage: torch_free_test.sh DEPENDENCIES TARGET...      (DEPENDENCIES: a file of labels below $TEST_SRCDIR)
set -euo pipefail

dependencies=$TEST_SRCDIR/$1
shift
for target in "$@"; do
  grep -qxF -- "$target" "$dependencies" || {
    echo "FAILED: $target is not in its own list of dependencies: the list is not what this test thinks it is." >&2
    exit 1
  }
done
guilty=$(grep -E '^@+libtorch|^//third_party/(libtorch|gloo|nccl)' "$dependencies" || true)
if [[ -n $guilty ]]; then
  echo "FAILED: one of $* depends on LibTorch:" >&2
  head -n 5 <<< "$guilty" >&2
  exit 1
fi
