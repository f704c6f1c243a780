#!/usr/bin/env bash
# MODULE.bazel names the modules, versions and repositories of repositories.bzl, and the release of version.h.
set -uo pipefail
readonly module=$1 version_header=$2 wanted=$3
failures=0

fail() {
  printf 'FAILED: %s\n' "$*"
  failures=$((failures + 1))
}

release() { # HEADER
  sed -nE 's/^#define COHORT_VERSION_(MAJOR|MINOR|PATCH) +([0-9]+)$/\2/p' "$1" | paste -sd.
}

# What a module file says, in the form of the wanted lines.
said() { # FILE
  sed -nE \
    -e '/^bazel_dep\(.*repo_name = /s/.*\(name = "([^"]+)", version = "([^"]+)".*repo_name = "([^"]+)".*/\1 \2 \3/p' \
    -e '/repo_name/!s/^bazel_dep\(name = "([^"]+)", version = "([^"]+)".*/\1 \2 \1/p' "$1"
  grep '^use_repo(' "$1" | grep -o '"[^"]*"' | tr -d '"'
  awk '/^module\(/, /^\)/' "$1" | sed -nE 's/^ +version = "([^"]+)",$/cohort \1/p'
}

# differences FILE: lines that only one side has; status 0 if there are none.
differences() { diff <({ cat "$wanted" && echo "cohort $(release "$version_header")"; } | sort) <(said "$1" | sort); }

[[ $(release "$version_header") =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "$version_header has no release: $(release "$version_header")"
found=$(differences "$module") || fail "MODULE.bazel (>) differs from repositories.bzl and version.h (<):"$'\n'"$found"

# This comparison sees each line that it should.
lines=0
while read -r name version repository; do
  lines=$((lines + 1))
  if [[ -n $version ]]; then
    sed "/name = \"$name\"/,/version/s/version = \"$version\"/version = \"0.0.1\"/" "$module" >"$TEST_TMPDIR/changed"
  else
    sed "/^use_repo/s/, \"$name\"//" "$module" >"$TEST_TMPDIR/changed"
  fi
  found=$(differences "$TEST_TMPDIR/changed") && fail "a change of $name ${version:-} ${repository:-} is not seen"
  grep -qF "< $name" <<<"$found" || fail "a change of $name shows as: $found"
done < <(said "$module")
((lines >= 10)) || fail "only $lines lines were compared"
((failures == 0))
