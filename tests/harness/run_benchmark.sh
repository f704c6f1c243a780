#!/usr/bin/env bash
# Runs a benchmark briefly: it must still work. What `benchmark_test` executes.
#
# usage: run_benchmark.sh PROGRAM ARGS...      (PROGRAM below $TEST_SRCDIR)
set -euo pipefail

log=$TEST_TMPDIR/log
"$TEST_SRCDIR/$1" "${@:2}" 2>&1 | tee "$log" || {
  echo "FAILED: the benchmark did not end with 0." >&2
  exit 1
}
# Google Benchmark ends with 0 in this case.
! grep -q 'ERROR OCCURRED' "$log" || {
  echo "FAILED: a measurement reports an error." >&2
  exit 1
}
grep -qE '[0-9]' "$log" || {
  echo "FAILED: the benchmark printed no figure." >&2
  exit 1
}
