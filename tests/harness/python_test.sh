#!/usr/bin/env bash
# Runs a Python program as a test, without leaving bytecode behind.
#
# usage: [PYTHON=INTERPRETER] python_test.sh SCRIPT ARGS...      (both below $TEST_SRCDIR)
set -euo pipefail
PYTHONDONTWRITEBYTECODE=1 exec "${PYTHON:+$TEST_SRCDIR/}${PYTHON:-python3}" "$TEST_SRCDIR/$1" "${@:2}"
