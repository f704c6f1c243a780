#!/usr/bin/env bash
# usage: main.sh [CASE...]      run.sh builds it and starts it where the tools are
set -euo pipefail
# A relative path on a command line below is meant from the case's folder, not from where `bazel run` was called.
unset CDPATH BUILD_WORKING_DIRECTORY BUILD_WORKSPACE_DIRECTORY

RUNFILES=${RUNFILES_DIR:-$0.runfiles}/cohort
[[ -d $RUNFILES ]] || RUNFILES=${RUNFILES%/*}/_main # as a module
[[ $RUNFILES == /* ]] || RUNFILES=$PWD/$RUNFILES
readonly RUNFILES all=(torchrun mpirun slurm two_hosts pid_one)

cases=("$@")
((${#cases[@]})) || cases=("${all[@]}")
failed=()
for case in "${cases[@]}"; do
  [[ " ${all[*]} " == *" $case "* ]] || { echo "FAILED: there is no case $case; there are: ${all[*]}" >&2; exit 2; }
done
for case in "${cases[@]}"; do
  folder=$(mktemp -d /tmp/cohort-system.XXXXXX)
  since=$SECONDS
  status=0
  # A bash of its own: what a case starts, traps and sets is its own, and errexit works in it.
  (
    cd "$folder"
    # shellcheck disable=SC1090,SC1091 # from the runfiles
    source "$RUNFILES/tests/system/lib.sh"
    # shellcheck disable=SC1090
    source "$RUNFILES/tests/system/$case.sh"
  ) &
  wait $! || status=$?
  if ((status == 0)); then
    echo "passed: $case ($((SECONDS - since)) s)"
    rm -rf "$folder"
  else
    echo "FAILED: $case ($((SECONDS - since)) s); what it left: $folder"
    failed+=("$case")
  fi
done
((${#failed[@]} == 0)) || { echo "FAILED: ${failed[*]} of ${cases[*]}"; exit 1; }
echo "PASSED: ${cases[*]}"
