// File: nccl_backend.h
//
// The nccl backend: collectives on CUDA tensors, through c10d::ProcessGroupNCCL. Every build has this header; without
// --config=cuda there is no NCCL behind it.

#ifndef COHORT_RUNTIME_INTERNAL_NCCL_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_NCCL_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/job_store.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {

// True if this build contains NCCL.
bool HasNccl();

// The visible CUDA devices in CUDA's order, by UUID. Empty if there is none, for whatever reason. Leaves the current
// device as it is.
std::vector<std::string> VisibleCudaDevices();

struct NcclOptions {
  // The CUDA device that all of this rank's collectives run on.
  int device = 0;
  // Tells the keys of this group from those of others in a store that they share.
  std::string prefix;
  // This machine's address by which the others reach it, as numbers. Rank 0 serves a store there unless there is one
  // already.
  std::string local_host;
  // How long the ranks may take to connect to each other.
  absl::Duration connect_timeout;
  // How long LibTorch lets an operation take that does not say otherwise.
  absl::Duration timeout;
};

// Collective. Connects every rank to every other, through `store` if there is one; so on all ranks or on none. Leaves
// the current device as it is.
//
// Errors: those of ProcessGroup.
absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectNccl(const RankInfo& info, NcclOptions options,
                                                          absl_nonnull std::unique_ptr<ControlPlane> control,
                                                          absl_nullable std::unique_ptr<JobStore> store);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_NCCL_BACKEND_H_
