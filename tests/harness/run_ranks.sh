#!/usr/bin/env bash
# Runs a rank binary under the launcher and judges the outcome. What `multiprocess_test` executes.
#
# usage: run_ranks.sh LAUNCHER BINARY WORLD_SIZE [ARGS...]      (the first two as paths below $TEST_SRCDIR)
#
# Passes if every rank ended with 0 and all ranks report the same TESTs with the same outcome, at least one. Deadlines
# nest, so that the one who knows most about a hang speaks first: a collective (30 s) < one TEST (40 s, in the rank) <
# this script (3/4 of Bazel's) < Bazel.
set -euo pipefail

launcher=$TEST_SRCDIR/$1
binary=$TEST_SRCDIR/$2
world_size=$3
shift 3

limit=$((${TEST_TIMEOUT:-300} * 3 / 4))
results=$TEST_TMPDIR/results
mkdir "$results"
report=${XML_OUTPUT_FILE:-}
# The ranks must not all write to the one file that is meant for a single process.
unset XML_OUTPUT_FILE TEST_PREMATURE_EXIT_FILE

fail() {
  echo "FAILED: $*" >&2
  # Bazel's report of this test is one rank's: of the lowest that says what failed. If none does (a crash, a hang),
  # Bazel writes a report of its own with the log in it.
  local culprit
  culprit=$(grep -l '<failure' "$results"/rank_*.xml 2>/dev/null | sort -V | head -n 1 || true)
  [[ -z $report || -z $culprit ]] || cp "$culprit" "$report"
  exit 1
}

# outcomes FILE: "Suite.Test result" of each TEST, in the order they ran, but those that were not to run
outcomes() {
  sed -nE 's/.*<testcase name="([^"]*)".* result="([^"]*)".* classname="([^"]*)".*/\3.\1 \2/p' "$1" |
    grep -v ' suppressed$' || true
}

status=0
COHORT_RANK_RESULTS=$results timeout --kill-after=10 "$limit" \
  "$launcher" --nproc-per-node="$world_size" --grace=5 "$binary" "$@" || status=$?
if ((status == 124 || status == 137)); then
  fail "the $world_size ranks had not ended after $limit s; above, each says where it stood."
elif ((status != 0)); then
  fail "the launcher ended with $status, a rank's exit code; above, it says which rank was the first to fail."
fi

for ((rank = 0; rank < world_size; ++rank)); do
  file=$results/rank_$rank.xml
  [[ -s $file ]] || fail "rank $rank ended with 0 but left no result: its main() is not the one that multiprocess_test adds." \
    "Take out of its srcs and deps what brings a main(), such as gtest_main."
  outcomes "$file" > "$results/outcomes_$rank"
  [[ -s $results/outcomes_$rank ]] || fail "rank $rank ran no TEST."
  diff "$results/outcomes_0" "$results/outcomes_$rank" ||
    fail "rank $rank ran other TESTs than rank 0, or skipped others (above; < is rank 0): a TEST body is collective."
done
[[ -z $report ]] || cp "$results/rank_0.xml" "$report"
