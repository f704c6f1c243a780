// File: torchrun_environment.h
//
// The variables of torchrun, of cohort's launcher, of Kubernetes' PyTorchJob, and of whoever starts ranks by hand.

#ifndef COHORT_RUNTIME_INTERNAL_TORCHRUN_ENVIRONMENT_H_
#define COHORT_RUNTIME_INTERNAL_TORCHRUN_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/environment_values.h"
#include "cohort/runtime/internal/launcher_environment.h"

namespace cohort::internal {

class TorchrunEnvironment final : public LauncherEnvironment {
 public:
  std::string_view name() const override { return "torchrun"; }
  absl::Span<const std::string_view> variables() const override;
  absl::StatusOr<bool> HasStarted(GetVariable get) const override;
  // A world of one if none of the four is set that go together: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
  absl::StatusOr<Placement> Place(GetVariable get) const override;
  // Nothing is derived: Place has seen that both are set.
  absl::StatusOr<Derived<std::string>> DeriveMasterAddr(const Placement& placement, GetVariable get) const override;
  absl::StatusOr<Derived<int>> DeriveMasterPort(const Placement& placement, GetVariable get) const override;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TORCHRUN_ENVIRONMENT_H_
