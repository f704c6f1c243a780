// Inside of a step, srun sets the variables of the step, and most of the job's once more with the step's values; but
// not all (SLURM_JOB_NODELIST), and not in all versions. So the step's come first, the job's where they are missing, and
// where both are the step's tasks are counted twice.

#include "cohort/runtime/internal/slurm_environment.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/internal/derived_port.h"
#include "cohort/runtime/internal/node_list.h"
#include "cohort/runtime/internal/tasks_per_node.h"

namespace cohort::internal {
namespace {

constexpr std::string_view kVariables[] = {
    "SLURM_JOB_ID",         "SLURM_JOBID",          "SLURM_STEP_ID",       "SLURM_STEPID",
    "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS",        "SLURM_NPROCS",
    "SLURM_LOCALID",        "SLURM_NODEID",         "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE", "SLURM_JOB_NODELIST",   "SLURM_NODELIST",      "SLURM_RESTART_COUNT"};

constexpr int64_t kMaxJobId = 0xffffffff;
// Steps of srun are numbered from 0. From here on stand the batch script, the interactive shell and the like; recent
// versions write these as negative numbers: -5 is 0xfffffffb, the batch script.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;
constexpr int64_t kMostNegativeStep = 16;
constexpr int64_t kStepsApart = 97;

std::string_view JobIdName(GetVariable get) { return FirstThatIsSet(get, {"SLURM_JOB_ID", "SLURM_JOBID"}); }
std::string_view StepIdName(GetVariable get) { return FirstThatIsSet(get, {"SLURM_STEP_ID", "SLURM_STEPID"}); }

absl::StatusOr<int64_t> ReadJobId(GetVariable get) { return ReadNumber(get, JobIdName(get), 0, kMaxJobId); }
absl::StatusOr<int64_t> ReadStepId(GetVariable get) {
  return ReadNumber(get, StepIdName(get), 0, kFirstSpecialStep - 1);
}

std::string_view TasksPerNodeName(GetVariable get) {
  return FirstThatIsSet(get, {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"});
}

absl::StatusOr<TasksPerNode> ReadTasksPerNode(GetVariable get) {
  const std::string_view name = TasksPerNodeName(get);
  const std::optional<std::string> value = get(name);
  if (!value.has_value())
    return MissingVariables({"SLURM_STEP_TASKS_PER_NODE"}, "it says how many ranks each node has");
  std::optional<TasksPerNode> tasks = TasksPerNode::Parse(*value);
  if (!tasks.has_value()) return MalformedVariable(name, *value, TasksPerNode::kForm);
  return *std::move(tasks);
}

// The number of ranks, by itself or as the sum of `tasks`; the two must agree.
absl::StatusOr<int> ReadWorldSize(const TasksPerNode& tasks, GetVariable get) {
  const std::string_view name = FirstThatIsSet(get, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"});
  const int num_tasks = static_cast<int>(tasks.num_tasks());
  ABSL_ASSIGN_OR_RETURN(const int size, ReadInt(get, name, 1, kMaxWorldSize, num_tasks));
  if (size == num_tasks) return size;
  return MalformedVariable(name, get(name).value_or(""),
                           absl::StrCat(num_tasks, ", because ", TasksPerNodeName(get), "=\"",
                                        get(TasksPerNodeName(get)).value_or("").substr(0, 100), "\""));
}

absl::StatusOr<int64_t> ReadLocalWorldSize(const TasksPerNode& tasks, GetVariable get) {
  if (!get("SLURM_NODEID").has_value() && tasks.is_even()) return tasks.OnNode(0);
  if (!get("SLURM_NODEID").has_value()) {
    return MissingVariables({"SLURM_NODEID"},
                            "it says which node this is, and the nodes have different numbers of ranks");
  }
  ABSL_ASSIGN_OR_RETURN(const int64_t node, ReadNumber(get, "SLURM_NODEID", 0, tasks.num_nodes() - 1));
  return tasks.OnNode(node);
}

}  // namespace

bool SlurmEnvironment::IsInAllocation(GetVariable get) { return get(JobIdName(get)).has_value(); }

absl::Span<const std::string_view> SlurmEnvironment::variables() const { return kVariables; }

absl::StatusOr<bool> SlurmEnvironment::HasStarted(GetVariable get) const {
  const std::string_view name = StepIdName(get);
  const std::optional<std::string> value = get(name);
  if (!value.has_value()) return false;
  const bool is_negative = value->starts_with('-');
  const std::optional<int64_t> number = ParseDigits(std::string_view(*value).substr(is_negative ? 1 : 0));
  if (!number.has_value() || *number > (is_negative ? kMostNegativeStep : kMaxJobId) || (is_negative && *number == 0)) {
    return MalformedVariable(name, *value, "the number of a step, from 0 to 4294967295, or one from -16 to -1");
  }
  return !is_negative && *number < kFirstSpecialStep;
}

absl::StatusOr<Placement> SlurmEnvironment::Place(GetVariable get) const {
  if (const std::vector<std::string_view> missing = ThoseNotSet(get, {JobIdName(get), "SLURM_PROCID", "SLURM_LOCALID"});
      !missing.empty()) {
    return MissingVariables(missing,
                            absl::StrCat("srun sets it in a step, and ", StepIdName(get), " says that this is one"));
  }
  Placement place = {.has_local_rank = true};
  ABSL_ASSIGN_OR_RETURN(const TasksPerNode tasks, ReadTasksPerNode(get));
  ABSL_ASSIGN_OR_RETURN(place.world_size, ReadWorldSize(tasks, get));
  ABSL_ASSIGN_OR_RETURN(place.rank, ReadInt(get, "SLURM_PROCID", 0, place.world_size - 1, 0));
  ABSL_ASSIGN_OR_RETURN(const int64_t local_world_size, ReadLocalWorldSize(tasks, get));
  place.local_world_size = static_cast<int>(local_world_size);
  ABSL_ASSIGN_OR_RETURN(place.local_rank, ReadInt(get, "SLURM_LOCALID", 0, place.local_world_size - 1, 0));
  ABSL_ASSIGN_OR_RETURN(place.restart_count, ReadInt(get, "SLURM_RESTART_COUNT", 0, kMaxRestarts, 0));
  ABSL_ASSIGN_OR_RETURN(const int64_t job, ReadJobId(get));
  ABSL_ASSIGN_OR_RETURN(const int64_t step, ReadStepId(get));
  place.run_id = absl::StrCat("slurm-", job, ".", step);
  return place;
}

absl::StatusOr<Derived<std::string>> SlurmEnvironment::DeriveMasterAddr(const Placement& placement,
                                                                        GetVariable get) const {
  if (IsOneNode(placement)) return Derived<std::string>{"127.0.0.1", "this machine, which has all ranks"};
  if (placement.rank == 0 && get("SLURM_NODEID").value_or("0") != "0") {
    return MalformedVariable("SLURM_NODEID", get("SLURM_NODEID").value_or(""),
                             "0 for rank 0, unless MASTER_ADDR says where it is");
  }
  const std::string_view name = FirstThatIsSet(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"});
  const std::string value = get(name).value_or("");
  std::optional<NodeList> nodes = ParseNodeList(value);
  if (!nodes.has_value()) return MalformedVariable(name, value, kNodeListForm);
  return Derived<std::string>{std::move(nodes->first), absl::StrCat("the first node of ", name)};
}

absl::StatusOr<Derived<int>> SlurmEnvironment::DeriveMasterPort(const Placement& /*placement*/, GetVariable get) const {
  ABSL_ASSIGN_OR_RETURN(const int64_t job, ReadJobId(get));
  ABSL_ASSIGN_OR_RETURN(const int64_t step, ReadStepId(get));
  return Derived<int>{
      DerivedPort(kStepsApart * job + step),
      absl::StrCat("20000 + (", kStepsApart, " * ", JobIdName(get), " + ", StepIdName(get), ") % 10000")};
}

}  // namespace cohort::internal
