#!/usr/bin/env bash
# invisible_test passes for a target that is closed, and fails for one that is open or broken, with the reason.
#
# usage: invisible_test_test.sh CLOSED OPEN BROKEN      (the three probes)
set -euo pipefail

closed=$TEST_SRCDIR/$1
open=$TEST_SRCDIR/$2
broken=$TEST_SRCDIR/$3
log=$TEST_TMPDIR/log

die() {
  echo "FAILED: $*" >&2
  cat "$log" >&2
  exit 1
}

"$closed" > "$log" 2>&1 || die "the probe of a closed target fails"

! "$open" > "$log" 2>&1 || die "the probe of an open target passes"
grep -q '//tests/harness/testdata/hidden:open is visible from //tests/harness, and must not be' "$log" ||
  die "no reason given"
! grep -q 'hidden:closed is visible' "$log" || die "blames the target that is closed"

! "$broken" > "$log" 2>&1 || die "the probe of a broken target passes"
grep -q 'not because of its visibility' "$log" || die "no reason given"
grep -q 'broken on purpose' "$log" || die "hides the cause"
