# shellcheck shell=bash
# What the consumers' check.sh share. Source it first: it stands in the consumer's folder afterwards, and takes care of Bazel.

unset CDPATH # cd would look there first
import_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly import_folder
checkout=${import_folder%/tests/import}
readonly checkout
cd "$(dirname "$0")" || exit 1
consumer=$(basename "$PWD")
readonly consumer
readonly output_base=$IMPORT_CACHE/output/$consumer
scratch=$(mktemp -d)
readonly scratch

# rc_word TEXT: as one word of a file of Bazel's settings.
rc_word() { sed "s/[[:space:]\"'\\\\#]/\\\\&/g" <<<"$1"; }

# What the consumer does not say for itself: these are settings of this machine and of this test.
{
  echo "startup --output_base=$(rc_word "$output_base")"
  echo "common --repository_cache=$(rc_word "$IMPORT_CACHE/repositories") --color=no --curses=no --show_progress_rate_limit=30"
  echo "build --disk_cache=$(rc_word "$IMPORT_CACHE/disk") --experimental_convenience_symlinks=ignore ${IMPORT_FLAGS-}"
  echo "test --test_output=errors"
} >"$scratch/bazelrc"

bazel() { "${IMPORT_BAZEL:-$checkout/bazelw}" --bazelrc="$scratch/bazelrc" "$@"; }

shut_down() { [[ ! -e $output_base ]] || bazel shutdown >"$scratch/shutdown" 2>&1 || true; }

remove_output_base() {
  shut_down
  [[ ! -e $output_base ]] || chmod -R u+w "$output_base" || true
  rm -rf "$output_base"
}

leave() {
  if [[ -n ${IMPORT_CLEAN-} ]]; then
    remove_output_base
  else
    shut_down
  fi
  rm -rf "$scratch"
}
trap leave EXIT

say() { printf '== %s: %s\n' "$consumer" "$*"; }

die() {
  printf '== %s: FAILED: %s\n' "$consumer" "$*"
  exit 1
}

# timed WHAT COMMAND...: says how long it took.
timed() {
  local what=$1 since
  shift
  since=$(date +%s%N)
  "$@" || die "$what: $* failed."
  printf '== %s: %6.1f s  %s\n' "$consumer" "$(($(date +%s%N) - since))e-9" "$what"
}

# ---- What each consumer does ----

# build_all: everything in the consumer's own packages.
build_all() {
  timed "fetching and analysis" bazel build --nobuild //...
  timed "first build" bazel build //...
  timed "no-op build" bazel build //...
}

tests_pass() { timed "its tests" bazel test //...; }

# two_ranks_save LAUNCHER: the program saves under the launcher, and both ranks read what it saved.
two_ranks_save() {
  local file=$scratch/deep/file rank
  bazel run --run_under="$1 --nproc-per-node=2" //app:save -- "$file" >"$scratch/log" 2>&1 ||
    die "two ranks do not save: $(cat "$scratch/log")"
  [[ $(cat "$file") == 'saved by an importer' ]] || die "$file does not hold what was saved."
  for rank in 0 1; do
    grep -qF "rank $rank of 2 reads $file" "$scratch/log" || die "rank $rank did not read the saved file: $(cat "$scratch/log")"
  done
  [[ $(ls "$scratch/deep") == file ]] || die "the save left litter: $(ls "$scratch/deep")"
  say "two ranks saved"
}

# fetch_elsewhere CONSUMER REPOSITORY: another consumer fetches it, into $IMPORT_CACHE/output/CONSUMER/external/REPOSITORY.
fetch_elsewhere() {
  local other=(--output_base="$IMPORT_CACHE/output/$1")
  (
    cd "$import_folder/$1" || exit 1
    bazel "${other[@]}" query "@$2//:BUILD.bazel" >"$scratch/fetch" 2>&1 || die "@$2 cannot be fetched: $(cat "$scratch/fetch")"
    bazel "${other[@]}" shutdown
  )
}

# fetched: which of the repositories in cohort's table are there, by their names in the table.
fetched() {
  local name module found
  sed -n '/^REPOSITORIES = {/,/^}/ { s/^    "\([a-z_]*\)": .*/\n\1/p; s/^        module = "\(.*\)",/\1/p }' "$checkout/third_party/repositories.bzl" |
    awk 'BEGIN { RS = ""; } { print $1, $2 }' | while read -r name module; do
    # Modules are resolved, and linked where they are overridden, whether they are used or not: that says nothing.
    [[ ! -e MODULE.bazel || -z $module ]] || continue
    # In a WORKSPACE the name itself, or what the module extension makes of it. Rule sets may be links that lead nowhere outside of the
    # root in which Bazel runs.
    for found in "$output_base/external/"{"$name",cohort[~+][~+]*[~+]"$name"}; do
      [[ ! -e $found && ! -L $found ]] || echo "$name"
    done
  done | sort -u
}

# fetched_only NAME...: of the repositories in cohort's table these, and no other, are there.
fetched_only() {
  local wanted
  wanted=$(printf '%s\n' "$@" | sort)
  diff <(echo "$wanted") <(fetched) >"$scratch/diff" || die "fetched too much (>) or not what was expected (<):
$(cat "$scratch/diff")"
  say "fetched no more than $*"
}
