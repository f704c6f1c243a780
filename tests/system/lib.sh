# shellcheck shell=bash disable=SC2034 # the cases use what is set here
# What the cases share. Each runs in a shell and a scratch folder of its own; a check that fails ends it.

# The programs, from the runfiles that `bazel run` shows.
readonly linear=$RUNFILES/trainers/linear launch=$RUNFILES/tools/launch/launch ckpt=$RUNFILES/tools/ckpt/ckpt
readonly torch_python=$RUNFILES/../torch_python/python3

fail() {
  printf 'FAILED: %s\n' "$*" >&2
  exit 1
}

# A missing tool is a failure: what was not run has not passed.
need() { # TOOL...
  local tool
  for tool in "$@"; do type -P "$tool" >/dev/null || fail "$tool is not installed; tests/system/run.sh says with what to start this"; done
}

# within SECONDS COMMAND...: runs it, with all it prints in the file `out`; sets $status. More time than that is a failure.
within() {
  local seconds=$1
  shift
  status=0
  timeout --kill-after=5 "$seconds" "$@" >out 2>&1 </dev/null || status=$?
  ((status != 124 && status != 137)) || fail "this took more than $seconds s: $*"$'\n'"$(tail -n 40 out)"
}

expect_status() { # CODE
  ((status == $1)) || fail "exit code $status, not $1:"$'\n'"$(tail -n 40 out)"
}

expect() { # TEXT: in what was printed
  grep -qF -e "$1" out || fail "\"$1\" was not printed:"$'\n'"$(tail -n 60 out)"
}

expect_not() { # TEXT
  ! grep -qF -e "$1" out || fail "\"$1\" was printed:"$'\n'"$(tail -n 60 out)"
}

# await SECONDS COMMAND...: repeats it until it succeeds.
await() {
  local -r end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < end)) || fail "in vain: $*"$'\n'"$(tail -n 40 out 2>/dev/null)"
    sleep 0.05
  done
}

free_port() { "$torch_python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
