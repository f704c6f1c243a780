// File: state_value.h
//
// A state as LibTorch's values, taken apart into a StateTree and tensors, and put together again.

#ifndef COHORT_CHECKPOINT_INTERNAL_STATE_VALUE_H_
#define COHORT_CHECKPOINT_INTERNAL_STATE_VALUE_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/saved_tensor.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

struct StateParts {
  StateTree tree;
  // What TensorIndex means. What is the same memory, seen in the same way, is there once (tied weights).
  std::vector<SavedTensor> tensors;
  std::vector<std::string> names;  // of each, for messages: where the tree has it first, keys joined by "."
};

// Errors, each with the name of the place:
//   InvalidArgument  a string or key is not UTF-8; a key is neither str nor int, or occurs twice; containers in
//                    containers deeper than kMaxStateDepth (so also one that contains itself); and what Savable says
//   Unimplemented    a value of a kind that no file holds; and what Savable says
absl::StatusOr<StateParts> TakeApart(const c10::IValue& state);
absl::StatusOr<StateParts> TakeApart(absl::Span<const std::pair<std::string, at::Tensor>> tensors);

// `tensor` is called with each TensorIndex, as often as the tree has it.
absl::StatusOr<c10::IValue> PutTogether(const StateTree& tree,
                                        absl::FunctionRef<absl::StatusOr<at::Tensor>(size_t index)> tensor);

// The name of a place below `name`.
std::string NameBelow(std::string_view name, const StateKey& key);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_STATE_VALUE_H_
