#!/usr/bin/env bash
# The LibTorch of Debian's package libtorch-dev: for the processor, linked with Debian's Gloo, under /usr among everything else.
set -euo pipefail
export COHORT_ROOT_PACKAGES=${COHORT_ROOT_PACKAGES:-libtorch-dev} COHORT_BAZEL=${COHORT_BAZEL:-provision}
# shellcheck source=tests/import/checks.sh
source "$(dirname "${BASH_SOURCE[0]}")/../checks.sh"

build_all
tests_pass
two_ranks_save @cohort//tools/launch
fetched_only bazel_skylib com_google_absl com_google_googletest gloo libtorch platforms rules_cc
[[ ! -e $output_base/external/libtorch/wheels ]] || die "a wheel was fetched."

# It has no CUDA. Who looks at everything that a build could need is not in the way of that; who builds with CUDA is told.
bazel query 'deps(//app:save)' >"$scratch/query" 2>&1 || die "its dependencies cannot be looked at: $(cat "$scratch/query")"
! bazel build --nobuild --@cohort//third_party/libtorch:cuda //app:save >"$scratch/log" 2>&1 || die "it is taken for one with CUDA."
grep -q 'LIBTORCH=/usr: has no CUDA: there is no libtorch_cuda.so in /usr/lib/' "$scratch/log" ||
  die "a build with CUDA is not told why it cannot be: $(cat "$scratch/log")"
say "a build with CUDA is refused, a query is not"
