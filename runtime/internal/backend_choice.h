// File: backend_choice.h
//
// Which backend the ranks of a job use: decided together, from what each of them says about itself.

#ifndef COHORT_RUNTIME_INTERNAL_BACKEND_CHOICE_H_
#define COHORT_RUNTIME_INTERNAL_BACKEND_CHOICE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::internal {

// What one rank says about itself.
struct RankFacts {
  bool has_local_rank = false;
  int local_rank = 0;
  // True if this build contains NCCL.
  bool has_nccl = false;
  // The visible CUDA devices in CUDA's order, each by an identity that no other device in the world has.
  std::vector<std::string> devices;
  // CUDA_VISIBLE_DEVICES as a person would write it: "CUDA_VISIBLE_DEVICES=0,1", "CUDA_VISIBLE_DEVICES is not set".
  std::string visible_devices;
  // NetworkStackId(), and the first address that gloo would listen on.
  std::string network_stack;
  std::string gloo_host;
};

// Bytes for the other ranks, and back.
//
// Errors: Internal if these are not the bytes of a RankFacts.
std::string EncodeFacts(const RankFacts& facts);
absl::StatusOr<RankFacts> DecodeFacts(std::string_view bytes);

// The device that a rank uses: number LOCAL_RANK when that many are visible, the only one when exactly one is.
//
// Errors: FailedPrecondition: the reason why this rank cannot use NCCL, in a job of `world_size` ranks.
absl::StatusOr<int> ChooseDevice(const RankFacts& facts, int world_size);

struct BackendChoice {
  std::string backend;  // "gloo" or "nccl"
  // For a person: why "auto" did not become nccl. Empty otherwise.
  std::string note;
};

// InvalidArgument unless `requested` is "auto", "gloo" or "nccl".
absl::Status CheckBackendName(std::string_view requested);

// A pure function of what is the same on all ranks, so that all come to the same result. `ranks` by rank, at least one.
//
// Errors:
//   FailedPrecondition  "nccl" is asked for and a rank cannot use it (names the first, and why), or two ranks have one
//                       device (names both)
//   InvalidArgument     gloo would have to connect different machines through a loopback address
absl::StatusOr<BackendChoice> ChooseBackend(std::string_view requested, const std::vector<RankFacts>& ranks);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_BACKEND_CHOICE_H_
