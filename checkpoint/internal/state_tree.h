// File: state_tree.h
//
// StateTree: what a state file holds beside the tensors' bytes, without LibTorch. Both formats are read into it and
// written from it.

#ifndef COHORT_CHECKPOINT_INTERNAL_STATE_TREE_H_
#define COHORT_CHECKPOINT_INTERNAL_STATE_TREE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "cohort/checkpoint/internal/dtype.h"

namespace cohort::internal {

struct StateTree;
struct StateItem;

// The place of a tensor in a table beside the tree. The same place twice is the same tensor twice (tied).
struct TensorIndex {
  size_t index = 0;
  bool operator==(const TensorIndex&) const = default;
};

using StateKey = std::variant<int64_t, std::string>;

struct StateList {
  std::vector<StateTree> items;
  bool operator==(const StateList&) const = default;
};

struct StateTuple {
  std::vector<StateTree> items;
  bool operator==(const StateTuple&) const = default;
};

// In order; no key twice.
struct StateDict {
  std::vector<StateItem> items;
  bool operator==(const StateDict&) const = default;
};

// A value and all that it contains. Strings are UTF-8.
struct StateTree {
  std::variant<std::monostate, bool, int64_t, double, std::complex<double>, std::string, TensorIndex, StateList,
               StateTuple, StateDict>
      value;
  bool operator==(const StateTree&) const = default;
};

struct StateItem {
  StateKey key;
  StateTree value;
  bool operator==(const StateItem&) const = default;
};

// Containers in containers: deeper states are refused, written or read. Functions that walk a tree may recurse.
inline constexpr int kMaxStateDepth = 100;

// Bytes of a file that belong to tensors.
struct StoredBytes {
  int64_t begin = 0;  // offset in the file
  int64_t num_bytes = 0;
  std::optional<uint32_t> crc32;  // nullopt: the file says nothing of it
};

// How a tensor lies in a file. Checked by the reader that made it: the dtype fits the storage, nothing lies outside of
// it, sizes are not negative, and the number of elements and bytes fit int64_t.
struct StoredTensor {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements, not negative
  int64_t offset = 0;            // in elements of the storage
  size_t storage = 0;            // place in StoredState::storages
  bool conjugated = false;       // the value is the conjugate, or the negative, of what is stored
  bool negated = false;
  bool requires_grad = false;
};

// A file, but for the tensors' bytes.
struct StoredState {
  StateTree tree;
  std::vector<StoredTensor> tensors;  // what TensorIndex means
  std::vector<StoredBytes> storages;
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_STATE_TREE_H_
