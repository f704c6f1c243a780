// File: pmix_environment.h
//
// Launchers that give a process a number and not the size of its world: those of PMIx alone (prterun), and, although
// they give both, those of PMI (MPICH's and Intel's mpirun), whose other variables are not read.

#ifndef COHORT_RUNTIME_INTERNAL_PMIX_ENVIRONMENT_H_
#define COHORT_RUNTIME_INTERNAL_PMIX_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/environment_values.h"
#include "cohort/runtime/internal/launcher_environment.h"

namespace cohort::internal {

// To take such a process for a world of one would make each of many take itself for the main rank. So Place always
// fails, and says what to set.
class PmixEnvironment final : public LauncherEnvironment {
 public:
  std::string_view name() const override { return "PMIx"; }
  absl::Span<const std::string_view> variables() const override;
  absl::StatusOr<bool> HasStarted(GetVariable get) const override;
  absl::StatusOr<Placement> Place(GetVariable get) const override;
  absl::StatusOr<Derived<std::string>> DeriveMasterAddr(const Placement& placement, GetVariable get) const override;
  absl::StatusOr<Derived<int>> DeriveMasterPort(const Placement& placement, GetVariable get) const override;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_PMIX_ENVIRONMENT_H_
