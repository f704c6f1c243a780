#!/usr/bin/env bash
# Our benchmarks, each beside its peers, in one run:
#
#   ./bazelw run -c opt //tests/peers -- save [DIRECTORY]    a state of 1 GiB: ours and torch.save, as shares of a raw write
#   ./bazelw run -c opt //tests/peers -- barrier             ours, gloo's and the store's; MPI's if mpicc and mpirun are there
#   ./bazelw run -c opt //tests/peers -- launch              ours, plain fork and exec, torchrun; mpirun if it is there
set -euo pipefail

readonly runfiles=${RUNFILES_DIR:-$0.runfiles} python=$1 script=$2
shift 2
repository=$runfiles/cohort
[[ -d $repository ]] || repository=$runfiles/_main # as a module
readonly repository
export PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1
peers() { "$runfiles/$python" "$runfiles/$script" "$@"; }
ours() { "$repository/$1" "${@:2}"; }

case ${1-} in
  save)
    ours checkpoint/save_benchmark "--directory=${2-/tmp}"
    peers save "${2-/tmp}"
    ;;
  barrier)
    ours runtime/barrier_benchmark
    if command -v mpicc mpirun >/dev/null; then
      scratch=$(mktemp -d)
      trap 'rm -rf "$scratch"' EXIT
      mpicc -O2 "$repository/tests/peers/mpi_barrier.c" -o "$scratch/mpi_barrier"
      for ranks in 2 4; do
        mpirun --allow-run-as-root --oversubscribe --mca btl self,tcp --mca btl_tcp_if_include lo --mca pml ob1 -n "$ranks" \
          "$scratch/mpi_barrier"
      done
    else
      echo "MPI_Barrier: not measured, there is no mpicc or mpirun"
    fi
    ;;
  launch)
    peers launch "$repository/tools/launch/launch"
    ;;
  *)
    sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed 1d
    exit 2
    ;;
esac
