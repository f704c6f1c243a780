#!/usr/bin/env bash
# run_ranks.sh and rank_main.cc, shown what must pass and what must not: each kind of failure is seen and explained.
#
# usage: run_ranks_test.sh RUN_RANKS LAUNCHER SUBJECT
set -euo pipefail

run_ranks=$TEST_SRCDIR/$1
launcher=$2
subject=$3

die() {
  echo "FAILED: $*" >&2
  echo "--- the log was:" >&2
  cat "$log" >&2
  exit 1
}

# run WANTED NAME [BINARY ARGS...]: runs two ranks in an environment like Bazel's; WANTED is pass or fail.
run() {
  local wanted=$1 name=$2 outcome=pass
  local folder=$TEST_TMPDIR/$name
  log=$folder/log
  report=$folder/test.xml
  mkdir -p "$folder/tmp"
  shift 2
  (($#)) || set -- "$subject" "--gtest_filter=Subject.$name"
  local binary=$1
  shift
  TEST_TIMEOUT=${timeout:-300} COHORT_TEST_SECONDS=${seconds:-40} XML_OUTPUT_FILE=$report \
    TEST_TMPDIR=$folder/tmp "$run_ranks" "$launcher" "$binary" 2 "$@" > "$log" 2>&1 || outcome=fail
  [[ $outcome == "$wanted" ]] || die "$name: wanted $wanted, got $outcome"
}

says() { grep -qE -- "$1" "$log" || die "the log does not say '$1'"; }

run pass Passes
[[ $(grep -c '<testcase .*result="completed"' "$report") == 1 ]] || die "the report has not exactly the TEST that ran"

run pass Both "$subject" --gtest_filter=Subject.Passes:Subject.PassesToo --gtest_shuffle
[[ $(grep -c '<testcase .*result="completed"' "$report") == 2 ]] || die "the report has not exactly both TESTs that ran"

run pass SkipsEverywhere
grep -q '<skipped' "$report" || die "the report hides that the TEST was skipped"

run fail FailsOnRankOne
says 'rank 1'
says 'as told'
grep -q '<failure' "$report" || die "the report holds no failure: whoever counts from it would count a success"

run fail DiesOnRankOne
says 'rank 1'
says 'SIGKILL'
[[ ! -e $report ]] || die "a report of a surviving rank would hide the failure"

run fail SkipsOnRankOne
says 'rank 1 ran other TESTs than rank 0'

run fail NoTest "$subject" --gtest_filter=Subject.DoesNotExist
says 'No TEST ran'

seconds=1 run fail HangsOnRankOne
says 'Subject.HangsOnRankOne has run for more than 1s'
says 'Subject_HangsOnRankOne_Test::TestBody'

timeout=12 run fail HangsForAll "$subject" --gtest_filter=Subject.HangsOnRankOne
says 'told to stop in Subject.HangsOnRankOne'
says 'had not ended after 9 s'

# A program that is not one of ours ends well and tests nothing.
printf '#!/bin/sh\nexit 0\n' > "$TEST_TMPDIR/true"
chmod +x "$TEST_TMPDIR/true"
ln -s "$TEST_TMPDIR/true" "$TEST_TMPDIR/link"
mkdir -p "$TEST_TMPDIR/srcdir"
cp -R "$TEST_SRCDIR/." "$TEST_TMPDIR/srcdir"
cp "$TEST_TMPDIR/true" "$TEST_TMPDIR/srcdir/other"
TEST_SRCDIR=$TEST_TMPDIR/srcdir run fail NotOurs other
says 'left no result: .* such as gtest_main\.'
