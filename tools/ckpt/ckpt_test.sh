#!/usr/bin/env bash
# Runs every line of SESSION that begins with "$ ", and compares all that is printed, exit codes included, with SESSION.
#
# usage: ckpt_test.sh CKPT WRITE_FILES SESSION      (WRITE_FILES DIRECTORY writes what the session looks at)
set -uo pipefail
ckpt_program=$PWD/$1
session=$PWD/$3
directory=$TEST_TMPDIR/files
mkdir -p "$directory" && "$PWD/$2" "$directory" && cd "$directory" || exit 1
unset BUILD_WORKING_DIRECTORY

ckpt() { "$ckpt_program" "$@"; }

run_session() {
  local line code
  while IFS= read -r line; do
    case $line in
      '$ '*) ;;
      '#'*) echo "$line" && continue ;;
      *) continue ;;
    esac
    echo "$line"
    code=0
    eval "${line#'$ '}" </dev/null 2>&1 || code=$?
    [[ $code == 0 ]] || echo "[exit code $code]"
  done <"$session"
}

run_session | sed "s|$directory|DIRECTORY|g; s|-[0-9a-f]\{16\}-[0-9]*-[0-9a-f]\{16\}|-UNIQUE|g" >"$TEST_TMPDIR/actual"
[[ -s $TEST_TMPDIR/actual ]] && diff -u "$session" "$TEST_TMPDIR/actual"
