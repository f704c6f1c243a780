// The rules, for each variable that is not set:
//
//   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT   none: a world of one. Some: an error, because half an environment
//                                                means that a launcher and a program misunderstand each other.
//                                                WORLD_SIZE=1 meets nobody.
//   LOCAL_RANK        0, as in PyTorch scripts that are started by hand, one process a machine.
//   LOCAL_WORLD_SIZE  WORLD_SIZE if LOCAL_RANK is set: started by hand on one machine. Otherwise 1: a process that was
//                     told nothing about its machine counts itself alone on it, so that rank and size agree with each
//                     other. Launchers set both.

#include "cohort/runtime/internal/torchrun_environment.h"

#include <string_view>
#include <vector>

#include "absl/status/status_macros.h"

namespace cohort::internal {
namespace {

constexpr std::string_view kVariables[] = {"RANK",
                                           "WORLD_SIZE",
                                           "LOCAL_RANK",
                                           "LOCAL_WORLD_SIZE",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "TORCHELASTIC_USE_AGENT_STORE"};
constexpr std::string_view kTogether =
    "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT go together; none of them means a world of one process";

// Whether the variables that go together are all set; false if none of them is.
absl::StatusOr<bool> IsWhole(GetVariable get) {
  std::vector<std::string_view> needed = {"RANK", "WORLD_SIZE"};
  if (get("WORLD_SIZE") != "1") needed.insert(needed.end(), {"MASTER_ADDR", "MASTER_PORT"});
  const std::vector<std::string_view> missing = ThoseNotSet(get, needed);
  if (missing.empty()) return true;
  if (missing.size() == 4) return false;
  return MissingVariables(missing, kTogether);
}

}  // namespace

absl::Span<const std::string_view> TorchrunEnvironment::variables() const { return kVariables; }

absl::StatusOr<bool> TorchrunEnvironment::HasStarted(GetVariable get) const {
  return get("RANK").has_value() || get("WORLD_SIZE").has_value();
}

absl::StatusOr<Placement> TorchrunEnvironment::Place(GetVariable get) const {
  Placement place;
  ABSL_ASSIGN_OR_RETURN(const bool is_whole, IsWhole(get));
  if (is_whole) {
    ABSL_ASSIGN_OR_RETURN(place.world_size, ReadInt(get, "WORLD_SIZE", 1, kMaxWorldSize, 1));
    ABSL_ASSIGN_OR_RETURN(place.rank, ReadInt(get, "RANK", 0, place.world_size - 1, 0));
  }
  place.has_local_rank = get("LOCAL_RANK").has_value();
  const int local_world_size = place.has_local_rank ? place.world_size : 1;
  ABSL_ASSIGN_OR_RETURN(place.local_world_size,
                        ReadInt(get, "LOCAL_WORLD_SIZE", 1, place.world_size, local_world_size));
  ABSL_ASSIGN_OR_RETURN(place.local_rank, ReadInt(get, "LOCAL_RANK", 0, place.local_world_size - 1, 0));
  ABSL_ASSIGN_OR_RETURN(place.restart_count, ReadInt(get, "TORCHELASTIC_RESTART_COUNT", 0, kMaxRestarts, 0));
  ABSL_ASSIGN_OR_RETURN(place.use_agent_store, ReadBool(get, "TORCHELASTIC_USE_AGENT_STORE"));
  ABSL_ASSIGN_OR_RETURN(place.run_id, ReadRunId(get, "TORCHELASTIC_RUN_ID", "none"));
  return place;
}

absl::StatusOr<Derived<std::string>> TorchrunEnvironment::DeriveMasterAddr(const Placement& /*placement*/,
                                                                           GetVariable /*get*/) const {
  return MissingVariables({"MASTER_ADDR"}, kTogether);
}

absl::StatusOr<Derived<int>> TorchrunEnvironment::DeriveMasterPort(const Placement& /*placement*/,
                                                                   GetVariable /*get*/) const {
  return MissingVariables({"MASTER_PORT"}, kTogether);
}

}  // namespace cohort::internal
