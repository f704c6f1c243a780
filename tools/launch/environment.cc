#include "cohort/tools/launch/environment.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cohort::launch {

Environment ReadEnvironment(const char* const* entries) {
  Environment environment;
  for (; *entries != nullptr; ++entries) {
    const std::string_view entry = *entries;
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

std::vector<std::string> EnvironmentEntries(const Environment& environment) {
  std::vector<std::string> entries;
  entries.reserve(environment.size());
  for (const auto& [name, value] : environment) entries.push_back(absl::StrCat(name, "=", value));
  return entries;
}

bool IsInsideARank(const Environment& environment) {
  return environment.contains("RANK") || environment.contains("WORLD_SIZE") ||
         environment.contains("TORCHELASTIC_RUN_ID");
}

Environment RankEnvironment(const JobPlan& plan, int local_rank, const Environment& inherited) {
  Environment environment = inherited;
  auto set = [&environment](std::string_view name, const auto& value) {
    environment.insert_or_assign(std::string(name), absl::StrCat(value));
  };
  set("RANK", plan.rank(local_rank));
  set("WORLD_SIZE", plan.world_size());
  set("LOCAL_RANK", local_rank);
  set("LOCAL_WORLD_SIZE", plan.nproc_per_node);
  // A "group" is one launcher's ranks, and there is one role: all ranks do the same.
  set("GROUP_RANK", plan.node_rank);
  set("GROUP_WORLD_SIZE", plan.nnodes);
  set("ROLE_NAME", plan.role);
  set("ROLE_RANK", plan.rank(local_rank));
  set("ROLE_WORLD_SIZE", plan.world_size());
  set("MASTER_ADDR", plan.master_addr);
  set("MASTER_PORT", plan.master_port);
  set("TORCHELASTIC_RESTART_COUNT", plan.restart_count);
  set("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts);
  set("TORCHELASTIC_RUN_ID", plan.run_id);
  // We host no store: rank 0 must serve it.
  set("TORCHELASTIC_USE_AGENT_STORE", "False");
  // Would make a rank report its failure to the agent of a surrounding torchrun.
  environment.erase("TORCHELASTIC_ERROR_FILE");
  // These two are defaults, as in torchrun: the user's own value wins.
  environment.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
  if (plan.nproc_per_node > 1) environment.try_emplace("OMP_NUM_THREADS", "1");
  return environment;
}

}  // namespace cohort::launch
