#include "cohort/runtime/internal/tasks_per_node.h"

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/log/absl_check.h"
#include "absl/strings/str_split.h"
#include "cohort/runtime/internal/environment_values.h"

namespace cohort::internal {

std::optional<TasksPerNode> TasksPerNode::Parse(std::string_view text) {
  TasksPerNode tasks;
  for (std::string_view item : absl::StrSplit(text, ',')) {
    Run run = {.num_tasks = 0, .num_nodes = 1};
    if (const size_t open = item.find("(x"); open != std::string_view::npos) {
      if (!item.ends_with(')')) return std::nullopt;
      const std::optional<int64_t> repeated = ParseDigits(item.substr(open + 2, item.size() - open - 3));
      if (!repeated.has_value() || *repeated < 1 || *repeated > kMaxWorldSize) return std::nullopt;
      run.num_nodes = *repeated;
      item = item.substr(0, open);
    }
    const std::optional<int64_t> number = ParseDigits(item);
    // A node of a step has a task at least.
    if (!number.has_value() || *number < 1 || *number > kMaxWorldSize) return std::nullopt;
    run.num_tasks = *number;
    tasks.is_even_ = tasks.is_even_ && (tasks.runs_.empty() || tasks.runs_.back().num_tasks == run.num_tasks);
    tasks.num_nodes_ += run.num_nodes;
    tasks.num_tasks_ += run.num_tasks * run.num_nodes;
    if (tasks.num_tasks_ > kMaxWorldSize) return std::nullopt;
    tasks.runs_.push_back(run);
  }
  return tasks;
}

int64_t TasksPerNode::OnNode(int64_t node) const {
  ABSL_CHECK(node >= 0 && node < num_nodes_) << node << " of " << num_nodes_;
  auto run = runs_.begin();
  while (node >= run->num_nodes) {
    node -= run->num_nodes;
    ++run;
  }
  return run->num_tasks;
}

}  // namespace cohort::internal
