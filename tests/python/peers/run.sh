#!/usr/bin/env bash
# Our benchmarks, each beside its peers, in one run:
#
#   ./bazelw run -c opt //tests/python/peers -- save [DIRECTORY]    a state of 1 GiB: ours, torch.save and safetensors, as shares of a raw write
#   ./bazelw run -c opt //tests/python/peers -- load [DIRECTORY]    the same state read back, and a state of 100,000 tensors
#   ./bazelw run -c opt //tests/python/peers -- barrier             ours, gloo's and the store's; MPI's if mpicc and mpirun are there
#   ./bazelw run -c opt //tests/python/peers -- launch              ours, plain fork and exec, torchrun; mpirun if it is there
#   ./bazelw run -c opt //tests/python/peers -- ddp [BLOCKS]        a step of data-parallel training: ours and Python's, taking turns
#   ./bazelw run -c opt //tests/python/peers -- crashes [DIRECTORY [KILLS [MIB]]]    a SIGKILL in mid-save: ours, torch.save, safetensors, dcp
set -euo pipefail

readonly runfiles=${RUNFILES_DIR:-$0.runfiles} python=$1 script=$2 safetensors=$3
shift 3
repository=$runfiles/cohort
[[ -d $repository ]] || repository=$runfiles/_main # as a module
readonly repository
export PYTHONDONTWRITEBYTECODE=1
peers() { "$runfiles/$python" "$runfiles/$script" "$runfiles/$safetensors" "$@"; }
ours() { "$repository/$1" "${@:2}"; }

case ${1-} in
  save)
    ours checkpoint/save_benchmark "--directory=${2-/tmp}"
    peers save "${2-/tmp}"
    ;;
  load)
    ours checkpoint/load_benchmark "--directory=${2-/tmp}"
    peers load "${2-/tmp}"
    ;;
  barrier)
    export OMP_NUM_THREADS=1
    ours runtime/barrier_benchmark
    if command -v mpicc mpirun >/dev/null; then
      scratch=$(mktemp -d)
      trap 'rm -rf "$scratch"' EXIT
      mpicc -O2 "$repository/tests/python/peers/mpi_barrier.c" -o "$scratch/mpi_barrier"
      for ranks in 2 4; do
        mpirun --allow-run-as-root --oversubscribe --mca btl self,tcp --mca btl_tcp_if_include lo --mca pml ob1 -n "$ranks" \
          "$scratch/mpi_barrier"
      done
    else
      echo "MPI_Barrier: not measured, there is no mpicc or mpirun"
    fi
    ;;
  launch)
    export OMP_NUM_THREADS=1
    peers launch "$repository/tools/launch/launch"
    ;;
  ddp)
    "$runfiles/$python" "$repository/tests/python/peers/data_parallel.py" "$repository/runtime/distributed_data_parallel_benchmark" \
      "${@:2}"
    ;;
  crashes)
    "$runfiles/$python" "$repository/tests/python/peers/crashes.py" "$runfiles/$safetensors" \
      "$repository/tests/python/peers/save_once" "${@:2}"
    ;;
  *)
    sed -n 's/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed 1d
    exit 2
    ;;
esac
