// File: node_list.h
//
// Slurm's lists of nodes: "n01", "n[01-03,7],login", "rack[1-2]n[0-63]".

#ifndef COHORT_RUNTIME_INTERNAL_NODE_LIST_H_
#define COHORT_RUNTIME_INTERNAL_NODE_LIST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::internal {

struct NodeList {
  std::string first;
  int64_t num_nodes = 0;
};

// What a list is, for errors.
inline constexpr std::string_view kNodeListForm =
    "a list of nodes such as n[01-03,7],login with at most 1048576 of them";

// nullopt if it is no such list. Takes time and memory by the length of `text`, whatever numbers stand in it.
std::optional<NodeList> ParseNodeList(std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_NODE_LIST_H_
