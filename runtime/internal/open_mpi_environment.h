// File: open_mpi_environment.h
//
// The variables by which Open MPI's mpirun tells a process who it is; seen with versions 4, 5 and 6.

#ifndef COHORT_RUNTIME_INTERNAL_OPEN_MPI_ENVIRONMENT_H_
#define COHORT_RUNTIME_INTERNAL_OPEN_MPI_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/environment_values.h"
#include "cohort/runtime/internal/launcher_environment.h"

namespace cohort::internal {

class OpenMpiEnvironment final : public LauncherEnvironment {
 public:
  std::string_view name() const override { return "Open MPI"; }
  absl::Span<const std::string_view> variables() const override;
  absl::StatusOr<bool> HasStarted(GetVariable get) const override;
  absl::StatusOr<Placement> Place(GetVariable get) const override;
  // 127.0.0.1 on one machine. Nothing that mpirun sets says where rank 0 is if there are more.
  absl::StatusOr<Derived<std::string>> DeriveMasterAddr(const Placement& placement, GetVariable get) const override;
  absl::StatusOr<Derived<int>> DeriveMasterPort(const Placement& placement, GetVariable get) const override;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_OPEN_MPI_ENVIRONMENT_H_
