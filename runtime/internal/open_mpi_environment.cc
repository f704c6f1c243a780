#include "cohort/runtime/internal/open_mpi_environment.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/internal/derived_port.h"
#include "cohort/runtime/internal/text_hash.h"

namespace cohort::internal {
namespace {

constexpr std::string_view kRank = "OMPI_COMM_WORLD_RANK";
constexpr std::string_view kSize = "OMPI_COMM_WORLD_SIZE";
constexpr std::string_view kLocalRank = "OMPI_COMM_WORLD_LOCAL_RANK";
constexpr std::string_view kLocalSize = "OMPI_COMM_WORLD_LOCAL_SIZE";
// What the processes of one mpirun have in common: version 4 sets both, with the same value, 5 and 6 the first.
constexpr std::string_view kNamespace = "PMIX_NAMESPACE";
constexpr std::string_view kJob = "OMPI_MCA_ess_base_jobid";

constexpr std::string_view kTogether[] = {kRank, kSize, kLocalRank, kLocalSize};
constexpr std::string_view kVariables[] = {kRank, kSize, kLocalRank, kLocalSize, kNamespace, kJob};

}  // namespace

absl::Span<const std::string_view> OpenMpiEnvironment::variables() const { return kVariables; }

absl::StatusOr<bool> OpenMpiEnvironment::HasStarted(GetVariable get) const {
  return ThoseNotSet(get, kTogether).size() < std::size(kTogether);
}

absl::StatusOr<Placement> OpenMpiEnvironment::Place(GetVariable get) const {
  if (const std::vector<std::string_view> missing = ThoseNotSet(get, kTogether); !missing.empty()) {
    return MissingVariables(
        missing, absl::StrCat("mpirun sets ", kRank, ", ", kSize, ", ", kLocalRank, " and ", kLocalSize, " together"));
  }
  Placement place = {.has_local_rank = true};
  ABSL_ASSIGN_OR_RETURN(place.world_size, ReadInt(get, kSize, 1, kMaxWorldSize, 1));
  ABSL_ASSIGN_OR_RETURN(place.rank, ReadInt(get, kRank, 0, place.world_size - 1, 0));
  ABSL_ASSIGN_OR_RETURN(place.local_world_size, ReadInt(get, kLocalSize, 1, place.world_size, 1));
  ABSL_ASSIGN_OR_RETURN(place.local_rank, ReadInt(get, kLocalRank, 0, place.local_world_size - 1, 0));
  ABSL_ASSIGN_OR_RETURN(place.run_id, ReadRunId(get, FirstThatIsSet(get, {kNamespace, kJob}), "none"));
  return place;
}

absl::StatusOr<Derived<std::string>> OpenMpiEnvironment::DeriveMasterAddr(const Placement& placement,
                                                                          GetVariable /*get*/) const {
  if (IsOneNode(placement)) return Derived<std::string>{"127.0.0.1", "this machine, which has all ranks"};
  return MissingVariables({"MASTER_ADDR"},
                          absl::StrCat("of ", kSize, "=", placement.world_size, " ranks this machine has ", kLocalSize,
                                       "=", placement.local_world_size,
                                       ", and Open MPI does not say where rank 0 is; say it by mpirun -x "
                                       "MASTER_ADDR=HOST"));
}

absl::StatusOr<Derived<int>> OpenMpiEnvironment::DeriveMasterPort(const Placement& /*placement*/,
                                                                  GetVariable get) const {
  const std::string_view job = FirstThatIsSet(get, {kNamespace, kJob});
  const std::optional<std::string> value = get(job);
  if (!value.has_value()) {
    return MissingVariables({"MASTER_PORT"}, absl::StrCat("without it, it would follow from ", kNamespace, " or ", kJob,
                                                          ", and neither is set"));
  }
  return Derived<int>{DerivedPort(HashOfText(*value)), absl::StrCat("20000 + FNV-1a(", job, ") % 10000")};
}

}  // namespace cohort::internal
