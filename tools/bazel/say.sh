# shellcheck shell=bash
# What bazelw says, and how it shows that it is still working. Everything goes to stderr: stdout is Bazel's.

note() { printf 'bazelw: %s\n' "$*" >&2; }

# Bazel's own code for "something is wrong with this machine, and trying again does not help".
readonly exit_local_environment=36

# die LINE...: one message, the first line after "bazelw:", the rest indented under it.
die() {
  note "$1"
  shift
  (($# == 0)) || printf '  %s\n' "$@" >&2
  exit "$exit_local_environment"
}

# tick TEXT SINCE: a counter that runs on a terminal; elsewhere (a CI log) a line every 15 s.
tick_shown=0
tick() {
  local elapsed=$((SECONDS - $2))
  if [[ -t 2 ]]; then
    printf '\rbazelw: %s: %d s ' "$1" "$elapsed" >&2
  elif ((elapsed >= tick_shown + 15)); then
    note "$1: $elapsed s"
    tick_shown=$elapsed
  fi
}

# step TEXT COMMAND...: runs COMMAND with its output in $step_log, and returns its status. COMMAND gets a process group of its own,
# so that ending the group ends all that it started; a variable that says whose it is, should we be killed; and not the lock,
# which it would hold after us.
step_pid=
step() {
  local text=$1 since=$SECONDS status=0
  shift
  tick_shown=0
  set -m
  (
    exec {lock_fd}>&-
    export COHORT_PROVISIONING=$work
    "$@"
  ) >"$step_log" 2>&1 </dev/null &
  step_pid=$!
  set +m
  while kill -0 "$step_pid" 2>/dev/null; do
    tick "$text" "$since"
    sleep 0.2 {lock_fd}>&-
  done
  wait "$step_pid" || status=$?
  step_pid=
  [[ ! -t 2 ]] || printf '\r\033[K' >&2
  ((status)) || note "$text: $((SECONDS - since)) s"
  return "$status"
}

# The last lines of the step that failed, for die.
step_tail() { tail -n "$1" "$step_log" | cut -c1-300 | sed '2,$s/^/  /'; }
