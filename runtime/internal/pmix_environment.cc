#include "cohort/runtime/internal/pmix_environment.h"

#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {
namespace {

constexpr std::string_view kRank = "PMIX_RANK";
constexpr std::string_view kPmiRank = "PMI_RANK";
constexpr std::string_view kPmiSize = "PMI_SIZE";
constexpr std::string_view kVariables[] = {kRank, kPmiRank, kPmiSize};

absl::Status Refuse(std::string_view name, GetVariable get) {
  return MissingVariables(
      {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
      absl::StrCat(name, "=\"", absl::Utf8SafeCHexEscape(get(name).value_or("")),
                   "\" says that a launcher has started this process, and ",
                   name == kRank ? "no variable says how many there are" : "its other variables are not known here",
                   "; set these four, or use torchrun, srun, Open MPI's mpirun or cohort's launcher"));
}

}  // namespace

absl::Span<const std::string_view> PmixEnvironment::variables() const { return kVariables; }

absl::StatusOr<bool> PmixEnvironment::HasStarted(GetVariable get) const {
  if (get(kRank).has_value()) return true;
  return get(kPmiRank).has_value() && get(kPmiSize).value_or("1") != "1";
}

absl::StatusOr<Placement> PmixEnvironment::Place(GetVariable get) const {
  return Refuse(get(kRank).has_value() ? kRank : kPmiRank, get);
}

absl::StatusOr<Derived<std::string>> PmixEnvironment::DeriveMasterAddr(const Placement& /*placement*/,
                                                                       GetVariable get) const {
  return Refuse(kRank, get);
}

absl::StatusOr<Derived<int>> PmixEnvironment::DeriveMasterPort(const Placement& /*placement*/, GetVariable get) const {
  return Refuse(kRank, get);
}

}  // namespace cohort::internal
