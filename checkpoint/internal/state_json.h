// File: state_json.h
//
// A state in a format that holds named tensors and text: the tensors get names, and all else becomes one JSON text.
//
//   None, bool, int, str, list   as JSON has them
//   float                        a number with a point or an exponent, which reads back as exactly the same
//                                {"$float": "nan"}, "inf", "-inf"; "0x7ff8000000000001": any other NaN, by its bits
//   complex                      {"$complex": [real, imaginary]}, both as floats
//   tuple                        {"$tuple": [...]}
//   dict                         an object, if all keys are str and none begins with "$"
//                                {"$dict": [[key, value], ...]} otherwise
//   tensor                       {"$tensor": name}; the same name twice is the same tensor twice (tied)

#ifndef COHORT_CHECKPOINT_INTERNAL_STATE_JSON_H_
#define COHORT_CHECKPOINT_INTERNAL_STATE_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

struct NamedTensor {
  TensorIndex tensor;
  std::string name;
};

// Every tensor of `tree` once, in the order of their first places. A name is the path to that place, joined with ".":
// `optimizer.state.0.exp_avg`.
//
// Errors: InvalidArgument if two tensors would be called the same, or one "__metadata__", if a key or a string is not
// UTF-8, or if containers are nested more than kMaxStateDepth deep; with the places, as state["a"][0].
absl::StatusOr<std::vector<NamedTensor>> NameTensors(const StateTree& tree);

// Whether the names in their order say all: a dict from names to tensors, none of them tied. `tensors` is what
// NameTensors made of `tree`.
bool IsOnlyTensors(const StateTree& tree, absl::Span<const NamedTensor> tensors);

// `tensors` is what NameTensors made of `tree`.
std::string StateToJson(const StateTree& tree, absl::Span<const NamedTensor> tensors);

// What StateToJson made. TensorIndex is the place of the name in `names`, which are distinct, and all of which must
// occur. What is returned stays charged to `budget`.
//
// Errors: InvalidArgument for any other text; that of `budget`.
absl::StatusOr<StateTree> StateFromJson(std::string_view json, absl::Span<const std::string> names,
                                        MemoryBudget& budget);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_STATE_JSON_H_
