#!/usr/bin/env bash
# What an importer is told who brings what does not fit: one message each, with the value, the reason and the way out.
set -euo pipefail
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

count=0
# refused COMMAND... -- TEXT...: the command fails, and one of its messages has all the texts.
refused() {
  local -a command=()
  local text
  while [[ $1 != -- ]]; do command+=("$1") && shift; done
  shift
  ! bazel "${command[@]}" >"$scratch/out" 2>&1 || die "${command[*]} was not refused."
  tr '\n' ' ' <"$scratch/out" >"$scratch/line"
  for text in "$@"; do
    grep -qF -- "$text" "$scratch/line" || die "${command[*]}: the message lacks '$text':
$(cat "$scratch/out")"
  done
  count=$((count + 1))
  say "refused with: $*"
}

# libtorch_is_refused SETTING... -- TEXT...
libtorch_is_refused() {
  local -a settings=()
  while [[ $1 != -- ]]; do settings+=(--repo_env="$1") && shift; done
  refused query "${settings[@]}" @libtorch//:BUILD.bazel "$@"
}

# ---- A LibTorch that does not fit ----

# torch NAME MAJOR MINOR MACHINE: a folder that looks like a LibTorch; MACHINE as in byte 18 of its libraries, octal.
torch() {
  local torch=$scratch/$1 library
  mkdir -p "$torch/lib" "$torch/include/torch/csrc/api/include/torch"
  printf '#define TORCH_VERSION_MAJOR %s\n#define TORCH_VERSION_MINOR %s\n' "$2" "$3" >"$torch/include/torch/csrc/api/include/torch/version.h"
  for library in c10 torch_cpu; do
    # shellcheck disable=SC2059,SC1003 # the machine is part of the format, to be read as octal
    printf '\177ELF\002\001\001\000\000\000\000\000\000\000\000\000\003\000\'"$4"'\000' >"$torch/lib/lib$library.so"
  done
}
x86=076
arm=267
torch too_old 2 1 $x86
torch too_new 9 9 $x86
torch other_machine 2 14 $arm
torch old_strings 2 14 $x86
torch no_library 2 14 $x86
rm "$scratch/no_library/lib/libc10.so"

libtorch_is_refused LIBTORCH=relative/path -- LIBTORCH=relative/path 'not an absolute path' 'must be the absolute path of'
libtorch_is_refused LIBTORCH=/there/is/none -- LIBTORCH=/there/is/none 'does not exist' 'must be the absolute path of'
libtorch_is_refused LIBTORCH="$scratch" -- "LIBTORCH=$scratch" 'is not a LibTorch' version.h 'must be the absolute path of'
libtorch_is_refused LIBTORCH="$scratch/too_old" -- "LIBTORCH=$scratch/too_old" 'is LibTorch 2.1' '2.14 or later' 'if LIBTORCH is not set'
libtorch_is_refused LIBTORCH="$scratch/too_new" -- "LIBTORCH=$scratch/too_new" 'is LibTorch 9.9' @gloo --repo_env=GLOO=DIR
libtorch_is_refused LIBTORCH="$scratch/other_machine" -- "LIBTORCH=$scratch/other_machine" 'another architecture' 183 x86-64
libtorch_is_refused LIBTORCH="$scratch/old_strings" -- "LIBTORCH=$scratch/old_strings" _GLIBCXX_USE_CXX11_ABI 'Take a LibTorch with the C++11 ABI'
libtorch_is_refused LIBTORCH="$scratch/no_library" -- "LIBTORCH=$scratch/no_library" 'there is no libc10.so' 'must be the absolute path of'

# Each thing that is no library, and each program that cannot be had to find out.
not_a_library() { # NAME TEXT...
  local torch=$scratch/$1
  shift
  libtorch_is_refused LIBTORCH="$torch" -- "LIBTORCH=$torch" "$torch/lib/libc10.so" "$@"
}
for name in empty text folder; do
  torch "$name" 2 14 $x86
  rm "$scratch/$name/lib/libc10.so"
done
: >"$scratch/empty/lib/libc10.so"
echo "INPUT(libc10.so.1)" >"$scratch/text/lib/libc10.so"
mkdir "$scratch/folder/lib/libc10.so"
not_a_library empty 'is not a shared library' 'bytes []' '[127 69 76 70]'
not_a_library text 'is not a shared library' 'bytes [73 78 80 85]' '[127 69 76 70]'
not_a_library folder 'cannot be read, and must be a shared library' 'od ended with 1' directory
mkdir "$scratch/nothing" "$scratch/only_od"
ln -s "$(type -P od)" "$scratch/only_od/od"
libtorch_is_refused LIBTORCH="$scratch/old_strings" PATH="$scratch/nothing" -- "LIBTORCH=$scratch/old_strings" 'there is no od on PATH'
libtorch_is_refused LIBTORCH="$scratch/old_strings" PATH="$scratch/only_od" -- "LIBTORCH=$scratch/old_strings" 'there is no grep on PATH'

torch no_version x y $x86
libtorch_is_refused LIBTORCH="$scratch/no_version" -- "LIBTORCH=$scratch/no_version" 'its version cannot be read' "in $scratch/no_version/include/torch/csrc/api/include/torch/version.h"

# Neither would ever end.
torch pipe 2 14 $x86
rm "$scratch/pipe/lib/libc10.so"
mkfifo "$scratch/pipe/lib/libc10.so"
not_a_library pipe 'is neither a file nor a folder'
torch device 2 14 $x86
ln -sf /dev/zero "$scratch/device/include/torch/csrc/api/include/torch/version.h"
libtorch_is_refused LIBTORCH="$scratch/device" -- "LIBTORCH=$scratch/device" 'version.h is neither a file nor a folder'

# ---- Beside it, what pip puts there and what has nothing to do with it ----

torch_libraries() { # NAME: a folder with libraries that can be read; its libtorch_cpu.so needs libcudart.so.13
  torch "$1" 2 14 $x86
  cp -f "$libraries"/libc10.so "$libraries"/libtorch_cpu.so "$scratch/$1/lib"
}
taken() { # REPOSITORY SETTING=FOLDER FILE: the repository is made, and has the file
  bazel query --repo_env="$2" "$1//:BUILD.bazel" >"$scratch/out" 2>&1 || die "$2 is refused: $(cat "$scratch/out")"
  [[ $(bazel query --repo_env="$2" "kind('source file', deps($1//:all))" 2>"$scratch/out") == *"$3"* ]] ||
    die "$2 is taken without $3: $(cat "$scratch/out")"
  say "$2 is taken with $3"
}
bazel build //probe:libraries >"$scratch/out" 2>&1 || die "the libraries are not built: $(cat "$scratch/out")"
libraries=$(bazel info bazel-bin 2>"$scratch/out")/probe || die "$(cat "$scratch/out")"
readonly libraries
torch_libraries site-packages/torch
torch_libraries opt/torch
mkdir -p "$scratch"/{site-packages/nvidia/cu13,opt/nvidia/tools}/lib
ln -s "$scratch/site-packages/torch" "$scratch/link"
libtorch_is_refused LIBTORCH="$scratch/link" -- "LIBTORCH=$scratch/link" 'needs libcudart.so.13' "neither in $scratch/link/lib nor in $scratch/site-packages/nvidia"
cp "$libraries/libcudart.so.13" "$scratch/site-packages/nvidia/cu13/lib"
echo 'exports_files(["include", "lib"])' >"$scratch/site-packages/torch/BUILD.bazel"
taken @libtorch LIBTORCH="$scratch/link" tree/nvidia/cu13/lib/libcudart.so.13
cp "$libraries/libcudart.so.13" "$scratch/opt/torch/lib"
taken @libtorch LIBTORCH="$scratch/opt/torch" tree/torch/lib/libcudart.so.13
[[ ! -e $output_base/external/libtorch/tree/nvidia ]] || die "$scratch/opt/nvidia has nothing to do with $scratch/opt/torch, and is taken."

# ---- A LibTorch without CUDA ----

# Who looks at everything that some build could need, as `query` does, is not in the way of that; who builds with CUDA is told.
readonly cpu_only=--repo_env=LIBTORCH=$scratch/opt/torch
bazel query "$cpu_only" 'deps(@cohort//runtime)' >"$scratch/query" 2>"$scratch/out" ||
  die "what depends on a LibTorch without CUDA cannot be looked at: $(cat "$scratch/out")"
grep -qx '@libtorch_cuda//:torch' "$scratch/query" || die "a query does not look at both sides of a select: $(cat "$scratch/query")"
refused build --nobuild "$cpu_only" --@cohort//third_party/libtorch:cuda @cohort//runtime -- \
  "LIBTORCH=$scratch/opt/torch: has no CUDA: there is no libtorch_cuda.so in $scratch/opt/torch/lib"

# ---- Gloo's headers ----

refused query --repo_env=GLOO=/there/is/none @gloo//:BUILD.bazel -- GLOO=/there/is/none 'has no gloo/context.h' 'must be the absolute path of'
mkdir -p "$scratch/gloo_folder/gloo/context.h" "$scratch/gloo/gloo/transport/tcp"
refused query --repo_env=GLOO="$scratch/gloo_folder" @gloo//:BUILD.bazel -- "GLOO=$scratch/gloo_folder" 'has no gloo/context.h'
: | tee "$scratch"/gloo/gloo/{context.h,BUILD,transport/tcp/pair.h,transport/BUILD.bazel} >"$scratch/gloo/gloo/transport/tcp/BUILD.bazel"
taken @gloo GLOO="$scratch/gloo" src/gloo/context.h
taken @gloo GLOO="$scratch/gloo" src/gloo/transport/tcp/pair.h

# ---- Wheels that cannot be had ----

readonly way_out=--repo_env=LIBTORCH=DIR
mkdir -p "$scratch/wheels" "$scratch/no_pip" "$scratch/no_python"
# pip takes the file for what its name says, and then looks at its hash.
sed -n 's/^\([a-z0-9_-]*\)==\([^ ;]*\).*/\1 \2/p' "$checkout"/third_party/wheels/libtorch_cpu.lock | while read -r name version; do
  python3 - "$scratch/wheels" "${name//-/_}" "$version" <<'PYTHON'
import sys, zipfile
folder, name, version = sys.argv[1:]
with zipfile.ZipFile(f"{folder}/{name}-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr(f"{name}-{version}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    wheel.writestr(f"{name}-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
PYTHON
done
printf '#!/bin/sh\nexit 1\n' >"$scratch/no_pip/python3"
chmod +x "$scratch/no_pip/python3"

libtorch_is_refused PIP_NO_INDEX=1 PIP_FIND_LINKS="$scratch/wheels" -- @libtorch 'not the pinned one' libtorch_cpu.lock "$way_out"
libtorch_is_refused PIP_INDEX_URL=http://127.0.0.1:1/simple PIP_RETRIES=1 -- @libtorch 'cannot be reached' 'configuration says where the index is' "$way_out"
libtorch_is_refused PIP_INDEX_URL=http://127.0.0.1:1/simple PIP_RETRIES=1 PIP_QUIET=2 PIP_DEBUG=1 FORCE_COLOR=1 -- @libtorch 'cannot be reached' '  ERROR: No matching distribution found' "$way_out"
libtorch_is_refused PATH="$scratch/no_pip:/usr/bin:/bin" -- @libtorch "$scratch/no_pip/python3 has no pip" python3-pip "$way_out"
libtorch_is_refused PATH="$scratch/no_python" -- @libtorch 'no python3 on PATH' "$way_out"

# ---- Compilers' settings that do not fit ----

readonly probe=(build --copt=-Wfatal-errors)
refused "${probe[@]}" --cxxopt=-std=c++17 //probe:group -- "cohort needs C++20: build with --cxxopt=-std=c++20"
# Whichever file is compiled first is the one whose message a person sees.
! bazel "${probe[@]}" --keep_going --cxxopt=-std=c++17 @cohort//runtime @cohort//checkpoint:checkpoint_manager @cohort//tools/launch >"$scratch/out" 2>&1 ||
  die "C++17 was not refused."
! grep -E 'external/cohort/[^ ]*:[0-9]+:[0-9]+: (fatal )?error: ' "$scratch/out" | grep -vF 'cohort needs C++20' >"$scratch/line" ||
  die "with C++17 some of our files are not compiled, and do not say why: $(cat "$scratch/line")"
refused "${probe[@]}" --copt=-D_GLIBCXX_USE_CXX11_ABI=0 //probe:tensors -- "the C++11 string ABI: build without -D_GLIBCXX_USE_CXX11_ABI=0"
# The same two without the setting: it is what was refused.
bazel build //probe:group //probe:tensors >"$scratch/out" 2>&1 || die "the probes do not compile: $(cat "$scratch/out")"

say "$count inputs that do not fit are refused with a message that says why"
