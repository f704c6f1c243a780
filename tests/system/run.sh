#!/usr/bin/env bash
# cohort under the launchers of others and between two hosts: see docs/testing.md.
#
# usage: run.sh [CASE...]      torchrun, mpirun, slurm, two_hosts, pid_one; none: all of them. As root
#
# It installs what the cases need into a root of its own (./bazelw help-bazelw). With a Bazel of the machine's own the tools must
# be the machine's own, too. A missing tool is a failure.
set -euo pipefail
unset CDPATH
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

start=$(mktemp)
trap 'rm -f "$start"' EXIT
./bazelw run --script_path="$start" //tests:system
COHORT_ROOT_PACKAGES="iproute2 munge openmpi-bin slurm-wlm" ./bazelw exec "$start" "$@"
