#!/usr/bin/env bash
# Other repositories import cohort: each folder here is one, a workspace of its own. See docs/importing.md.
#
# usage: run.sh [NAME...]      the consumers to run; none: all of them
#
# Needs nothing but the checkout. Says of each consumer how long it took, and ends with "PASSED: ..." or "FAILED: ...".
#
# Variables:
#   IMPORT_CACHE=FOLDER   keep what is fetched and built here, for the next call; otherwise all of it goes at the end. From the
#                         current directory, if it is relative; so is IMPORT_BAZEL, if it has a slash
#   IMPORT_CLEAN=1        remove each consumer's output base after it: one takes up to 2 GB, the caches they share 1 GB
#   IMPORT_BAZEL=PROGRAM  this Bazel, and not the checkout's bazelw
#   IMPORT_FLAGS=OPTIONS  more options for every build, for example --repo_env=CC=clang
set -euo pipefail
unset CDPATH # cd would look there first
[[ ${IMPORT_CACHE:-/} == /* ]] || IMPORT_CACHE=$PWD/$IMPORT_CACHE
[[ ${IMPORT_BAZEL:-/} == /* || $IMPORT_BAZEL != */* ]] || IMPORT_BAZEL=$PWD/$IMPORT_BAZEL
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly all=(own_packages renamed vendored own_libtorch debian_libtorch bzlmod saver_only bad_input)

names=("$@")
((${#names[@]})) || names=("${all[@]}")
for name in "${names[@]}"; do
  [[ -x $name/check.sh ]] || { echo "FAILED: there is no consumer $name; there are: ${all[*]}"; exit 1; }
done

if [[ -z ${IMPORT_CACHE-} ]]; then
  IMPORT_CACHE=$(mktemp -d)
  IMPORT_CLEAN=1
  trap 'chmod -R u+w "$IMPORT_CACHE" || true; rm -rf "$IMPORT_CACHE"' EXIT
fi
mkdir -p "$IMPORT_CACHE"
IMPORT_CACHE=$(cd "$IMPORT_CACHE" && pwd)
export IMPORT_CACHE IMPORT_CLEAN IMPORT_BAZEL IMPORT_FLAGS

failed=()
for name in "${names[@]}"; do
  "$name/check.sh" </dev/null || failed+=("$name")
done

if ((${#failed[@]})); then
  echo "FAILED: ${failed[*]} of ${names[*]} ($SECONDS s)"
  exit 1
fi
echo "PASSED: ${names[*]} ($SECONDS s)"
