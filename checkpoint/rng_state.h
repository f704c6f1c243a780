// File: rng_state.h
//
// RngState, SetRngState, DeriveRngState: LibTorch's default random number generators, in the bytes that Python's
// torch.get_rng_state() and torch.cuda.get_rng_state() give.

#ifndef COHORT_CHECKPOINT_RNG_STATE_H_
#define COHORT_CHECKPOINT_RNG_STATE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// Local. The state of this process's generators: {"cpu": tensor} or, with devices, {"cpu": tensor, "cuda": [tensor, ...]}
// in the order in which they are given. Each tensor is a copy, uint8, on the CPU. In Python:
//
//   torch.set_rng_state(state["cpu"])
//   torch.cuda.set_rng_state(state["cuda"][0], device)
//
// Only the CUDA devices that are named are touched: a rank names its own, and none is given a CUDA context by this call
// without. Waits for draws that other threads make.
//
// Errors:
//   InvalidArgument    a device that is not there: its number, and how many there are
absl::StatusOr<c10::IValue> RngState(absl::Span<const int> cuda_devices = {});

// Local. The other way round. "cuda" must have a state for each device; without devices it may have any number, and is
// checked but not used, so that what was saved on a GPU loads where there is none. The generators change together: all
// states are checked first, down to the generator's own fields.
//
// Errors:
//   InvalidArgument    not such a dict; a tensor of another dtype or size than Python's; contents that no generator
//                      could have; another number of CUDA states than of devices; a device that is not there. Nothing
//                      is changed.
absl::Status SetRngState(const c10::IValue& state, absl::Span<const int> cuda_devices = {});

// Local. The beginning of a new random stream, for SetRngState: that of rank `rank` of a job of `world_size` ranks that goes
// on with a run of which `saved` has every rank's state. It follows from the arguments alone, so that going on once more
// gives the same numbers; no two ranks of a job get the same stream. "cuda" has `num_cuda_devices` states, no two the same.
//
// A stream is a seed, which depends on every bit of `saved` and on `world_size`; of the seed's 32 bits that a Mersenne
// Twister takes, the ranks' differ by their ranks.
//
// Errors:
//   InvalidArgument    `saved` is empty, or one of them is no state (see SetRngState): says which rank's
absl::StatusOr<c10::IValue> DeriveRngState(absl::Span<const c10::IValue> saved, int rank, int world_size,
                                           int num_cuda_devices = 0);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_RNG_STATE_H_
