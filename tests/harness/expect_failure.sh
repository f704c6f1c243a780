#!/usr/bin/env bash
# Passes if a check fails and says why: for known-bad subjects.
#
# usage: expect_failure.sh CHECK TEXT ARGS...      (CHECK below $TEST_SRCDIR; TEXT must be in its output)
set -euo pipefail

check=$TEST_SRCDIR/$1
text=$2
shift 2
if output=$("$check" "$@" 2>&1); then
  echo "FAILED: $check passed on a subject that is bad on purpose: $output" >&2
  exit 1
fi
grep -qF -- "$text" <<< "$output" || {
  echo "FAILED: $check failed without saying '$text': $output" >&2
  exit 1
}
