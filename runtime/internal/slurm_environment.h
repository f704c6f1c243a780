// File: slurm_environment.h
//
// The variables by which srun tells a process of a step who it is; seen with versions 22.05 and 26.05.

#ifndef COHORT_RUNTIME_INTERNAL_SLURM_ENVIRONMENT_H_
#define COHORT_RUNTIME_INTERNAL_SLURM_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/environment_values.h"
#include "cohort/runtime/internal/launcher_environment.h"

namespace cohort::internal {

class SlurmEnvironment final : public LauncherEnvironment {
 public:
  std::string_view name() const override { return "Slurm"; }
  absl::Span<const std::string_view> variables() const override;
  // True in a step of srun. Not in a batch script, nor in a shell of salloc, although most of the variables are there:
  // whoever starts a program by hand wants one.
  absl::StatusOr<bool> HasStarted(GetVariable get) const override;
  absl::StatusOr<Placement> Place(GetVariable get) const override;
  // The first node of the step, which has rank 0; 127.0.0.1 if it is the only one.
  absl::StatusOr<Derived<std::string>> DeriveMasterAddr(const Placement& placement, GetVariable get) const override;
  absl::StatusOr<Derived<int>> DeriveMasterPort(const Placement& placement, GetVariable get) const override;

  // Whether the process is inside a job's allocation, in a step or not.
  static bool IsInAllocation(GetVariable get);
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_SLURM_ENVIRONMENT_H_
