#!/usr/bin/env bash
# Starts the program: `bazel run` gives its place as the first argument.
#
# usage: compile_commands.sh PROGRAM ARGS...      (PROGRAM below the runfiles)
set -euo pipefail
exec python3 -B "$0.runfiles/$1" "${@:2}"
