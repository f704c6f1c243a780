# shellcheck shell=bash
# What .ci/run and .ci/extended share: steps with a common limit of time, and their outcomes.
#
# The script that sources this stands in the root of the checkout afterwards; `minutes` is the time for all of its steps.

set -uo pipefail
unset CDPATH # cd would look there first
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
exec </dev/null

[[ ${COHORT_CI_MINUTES:-1} =~ ^[1-9][0-9]{0,5}$ ]] ||
  { echo "COHORT_CI_MINUTES=$COHORT_CI_MINUTES must be a whole number of minutes from 1 to 999999." >&2; exit 2; }

if [[ -z ${HOME-} || ! -d ${HOME-} ]]; then
  HOME=$(getent passwd "$(id -u)" | cut -d: -f6)
  [[ -d $HOME ]] || HOME=$PWD/.home
  mkdir -p "$HOME" || exit 1
  export HOME
fi
scratch=$(mktemp -d) || exit 1
trap 'rm -rf "$scratch"' EXIT

say() { printf '==== [%3d min] %s\n' $((SECONDS / 60)) "$*"; }

within_the_time() { # COMMAND...
  local left=$((minutes * 60 - SECONDS))
  ((left > 0)) || { say "no time left for: $*"; return 1; }
  timeout --kill-after=30 "$left" "$@"
}

# step NAME COMMAND...: adds "passed" or "failed" to $outcomes, and what failed to $problems.
outcomes=()
problems=()
step() {
  local name=$1 since=$SECONDS
  shift
  say "$name"
  if within_the_time "$@"; then
    outcomes+=(passed)
    say "passed: $name ($((SECONDS - since)) s)"
  else
    outcomes+=(failed)
    problems+=("$name")
    say "FAILED: $name ($((SECONDS - since)) s)"
  fi
}
