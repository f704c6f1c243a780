// File: tasks_per_node.h
//
// TasksPerNode: how many ranks each node has, as Slurm writes it: "2(x3),1" is 2, 2, 2, 1.

#ifndef COHORT_RUNTIME_INTERNAL_TASKS_PER_NODE_H_
#define COHORT_RUNTIME_INTERNAL_TASKS_PER_NODE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace cohort::internal {

class TasksPerNode {
 public:
  // What a list is, for errors.
  static constexpr std::string_view kForm = "numbers of tasks such as 2(x3),1 with at most 1048576 tasks in all";

  // nullopt if it is no such list. Takes time and memory by the length of `text`, whatever numbers stand in it.
  static std::optional<TasksPerNode> Parse(std::string_view text);

  int64_t num_nodes() const { return num_nodes_; }
  int64_t num_tasks() const { return num_tasks_; }

  // `node` must be at least 0 and less than num_nodes().
  int64_t OnNode(int64_t node) const;

  // Whether all nodes have as many.
  bool is_even() const { return is_even_; }

 private:
  struct Run {
    int64_t num_tasks;
    int64_t num_nodes;
  };

  std::vector<Run> runs_;
  int64_t num_nodes_ = 0;
  int64_t num_tasks_ = 0;
  bool is_even_ = true;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TASKS_PER_NODE_H_
