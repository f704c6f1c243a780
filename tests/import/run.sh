#!/usr/bin/env bash
# Another repository imports cohort: it builds a program on @cohort//runtime and @cohort//checkpoint:main_only_saver,
# and saves with two ranks. See docs/importing.md.
#
# Needs nothing but the checkout. The last line is "PASSED: ..." or "FAILED: ...".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly bazelw=../../bazelw
flags=(--color=no --curses=no --show_progress_rate_limit=30)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

step() { printf '== import: %s (%d s so far)\n' "$*" "$SECONDS"; }

die() {
  echo "FAILED: $*"
  exit 1
}

step "two ranks save, under the launcher"
"$bazelw" run "${flags[@]}" --run_under='@cohort//tools/launch --nproc-per-node=2' //app:save -- "$scratch/deep/hello.txt" </dev/null |
  tee "$scratch/log" || die "the program does not build, or does not save."
[[ $(cat "$scratch/deep/hello.txt") == 'saved by the monorepo' ]] || die "the file does not hold what was saved."
for rank in 0 1; do
  grep -qF "rank $rank of 2 reads $scratch/deep/hello.txt" "$scratch/log" || die "rank $rank did not read the saved file."
done
[[ $(ls "$scratch/deep") == hello.txt ]] || die "the save left litter: $(ls "$scratch/deep")"

step "nothing was fetched that this program does not need"
external=$("$bazelw" info output_base)/external
[[ -e $external/com_google_absl && -e $external/libtorch ]] || die "$external holds no Abseil or no LibTorch: this is not where to look."
for unneeded in com_github_google_benchmark diabetes libtorch_cuda torch_python; do
  [[ ! -e $external/$unneeded ]] || die "@$unneeded was fetched for a program that does not need it."
done

step "what is not public cannot be used"
targets=$("$bazelw" query 'filter("sees_", //app:all)' 2>"$scratch/query") || die "query: $(cat "$scratch/query")"
[[ $(wc -l <<<"$targets") -ge 5 ]] || die "expected five or more targets that must be refused, found: $targets"
for target in $targets; do
  ! "$bazelw" build --nobuild "${flags[@]}" "$target" >"$scratch/refused" 2>&1 || die "$target was not refused."
  grep -q 'is not visible from' "$scratch/refused" || die "$target was refused for another reason: $(cat "$scratch/refused")"
done

step "the public headers are enough, among other people's macros"
"$bazelw" test "${flags[@]}" --test_output=errors //... </dev/null || die "a test of the importing repository failed."

echo "PASSED: another repository imports cohort and saves with two ranks ($SECONDS s)"
