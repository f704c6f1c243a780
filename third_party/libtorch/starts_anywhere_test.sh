#!/usr/bin/env bash
# A binary that links LibTorch starts from wherever it lies, with an empty environment, and links CUDA if and only if it was
# built for it.
#
# usage: starts_anywhere_test.sh BINARY cpu|cuda
set -euo pipefail

binary=$TEST_SRCDIR/$1
build=$2

die() {
  echo "FAILED: $*" >&2
  exit 1
}

starts() {  # starts COMMAND: it runs its one test with nothing in its environment
  local log=$TEST_TMPDIR/log
  (cd / && env -i "$@") > "$log" 2>&1 || die "'$*' does not start: $(cat "$log")"
  grep -q 'PASSED.* 1 test' "$log" || die "'$*' ran no test: $(cat "$log")"
}

# By its path below bazel-bin, and through a symlink somewhere else.
built=$(readlink -f "$binary")
starts "$built"
ln -s "$built" "$TEST_TMPDIR/link"
starts "$TEST_TMPDIR/link"

# From a copy of its runfiles tree. The CUDA libraries are 5 GB: links stand for their copies.
copy=$TEST_TMPDIR/copy
if [[ $build == cpu ]]; then
  cp -RL "$TEST_SRCDIR" "$copy"
else
  cp -R "$TEST_SRCDIR" "$copy"
  cp --remove-destination "$built" "$copy/$1"
fi
starts "$copy/$1"
elsewhere=$(ldd "$copy/$1" | grep -vE "=> ($copy|/lib|/usr/lib)|^\s*(/lib|linux-vdso)" || true)
[[ -z $elsewhere ]] || die "not found, or found outside the copy: $elsewhere"

# No path of the machine that built it.
paths=$(readelf -d "$built" | sed -n 's/.*R\(UN\)\?PATH.*\[\(.*\)\]/\2/p' | tr ':' '\n')
[[ -n $paths ]] || die "no search path at all: is this the binary?"
absolute=$(grep -v '^\$ORIGIN' <<< "$paths" || true)
[[ -z $absolute ]] || die "search paths that are not relative to the binary: $absolute"

needed=$(readelf -d "$built" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p')
grep -qxE 'libtorch_cpu\.so[0-9.]*' <<< "$needed" || die "does not link libtorch_cpu.so: $needed"
if [[ $build == cuda ]]; then
  grep -qxE 'libtorch_cuda\.so[0-9.]*' <<< "$needed" || die "built for CUDA, and does not link libtorch_cuda.so: $needed"
elif grep -qE 'torch_cuda|c10_cuda|nccl' <<< "$needed"; then
  die "built for the CPU, and links CUDA: $needed"
fi
