// File: gloo_backend.h
//
// The gloo backend: collectives on CPU tensors over TCP, through c10d::ProcessGroupGloo.

#ifndef COHORT_RUNTIME_INTERNAL_GLOO_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_GLOO_BACKEND_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {

struct GlooOptions {
  // This rank's own addresses that gloo listens on, as numbers. Not empty.
  std::vector<std::string> hosts;
  // How long the ranks may take to connect to each other.
  absl::Duration connect_timeout;
  // How long LibTorch lets an operation take that does not say otherwise.
  absl::Duration timeout;
};

// Collective. Connects every rank to every other, at addresses that they tell each other through `control`.
//
// Errors: those of ProcessGroup.
absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectGloo(const RankInfo& info, const GlooOptions& options,
                                                          absl_nonnull std::unique_ptr<ControlPlane> control);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_GLOO_BACKEND_H_
