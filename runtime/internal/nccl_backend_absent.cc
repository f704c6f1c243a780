// What nccl_backend.h promises in a build without --config=cuda.

#include <memory>
#include <string>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/log/absl_log.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/job_store.h"
#include "cohort/runtime/internal/nccl_backend.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {

bool HasNccl() { return false; }

std::vector<std::string> VisibleCudaDevices() { return {}; }

absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectNccl(const RankInfo&, NcclOptions,
                                                          absl_nonnull std::unique_ptr<ControlPlane>,
                                                          absl_nullable std::unique_ptr<JobStore>) {
  ABSL_LOG(FATAL) << "nccl was chosen in a build without NCCL";
}

}  // namespace cohort::internal
