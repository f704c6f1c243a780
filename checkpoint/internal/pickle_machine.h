// File: pickle_machine.h
//
// RunPickle: a pickle is a program for a stack machine, which builds values. This is that machine, for values that are
// data.

#ifndef COHORT_CHECKPOINT_INTERNAL_PICKLE_MACHINE_H_
#define COHORT_CHECKPOINT_INTERNAL_PICKLE_MACHINE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

// What a value is, and in brackets what its two halves `low` and `high` mean.
enum class PickleKind : uint8_t {
  kNone,
  kBool,     // low: 0 or 1
  kInt,      // both: an int64_t
  kDouble,   // both: its bits
  kComplex,  // real and imaginary part: nodes of kDouble
  kString,   // where it begins in the pickle, and its bytes
  kTuple,    // place of its first item in PickleGraph::items, and how many
  kList,     // place of its first and last run in PickleGraph::runs; kNoRun if empty
  kDict,     // the same; its items are keys and values in turn
  kTensor,   // node of the arguments, and the PickleFunction that was called with them
  kDevice,   // node of the arguments
  kStorage,  // place in PickleGraph::storages
  kGlobal,   // a PickleFunction, and its Dtype if it has one
  kRefused,  // argument of RefusedKind
};

enum class PickleFunction : uint32_t {
  kOrderedDict,
  kComplex,
  kSize,
  kDevice,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
  kParameter,
  kTypedStorage,  // of a Dtype
  kUntypedStorage,
  kDtype,  // a Dtype
};

struct PickleNode {
  PickleKind kind = PickleKind::kNone;
  // For whoever walks the graph.
  enum : uint8_t { kNew, kOpen, kDone } visit = kNew;
  uint8_t height = 0;
  uint32_t cost = 0;
  uint32_t low = 0;
  uint32_t high = 0;
};

// What a list or dict was given by one operation. They grow in runs, not in vectors of their own, so that 100,000 small
// ones cost no more than their items.
struct PickleRun {
  uint32_t begin = 0;  // in PickleGraph::items
  uint32_t size = 0;
  uint32_t next = 0;  // kNoRun at the end
};
inline constexpr uint32_t kNoRun = UINT32_MAX;

struct PickleStorage {
  std::string_view key;
  std::optional<Dtype> dtype;  // nullopt: untyped
  int64_t num_bytes = 0;
  StoredBytes bytes;
};

// Values that may hold each other, in cycles too. Nothing of them is checked but what building them took.
struct PickleGraph {
  std::string_view pickle;
  std::deque<PickleNode> nodes;  // deques do not copy all that they hold when they grow
  std::deque<uint32_t> items;    // nodes
  std::deque<PickleRun> runs;
  std::deque<PickleStorage> storages;
  uint32_t root = 0;

  std::string_view TextOf(const PickleNode& node) const { return pickle.substr(node.low, node.high); }
  int64_t IntOf(const PickleNode& node) const { return static_cast<int64_t>(uint64_t{node.high} << 32 | node.low); }

  // Calls `visit(place, node)` with every item of a tuple, list or dict, in order, while it returns true.
  template <typename Visit>
  void ForEachItem(const PickleNode& container, Visit visit) const {
    if (container.kind == PickleKind::kTuple) {
      for (uint32_t i = 0; i < container.high; ++i) {
        if (!visit(i, items[container.low + i])) return;
      }
      return;
    }
    uint32_t place = 0;
    for (uint32_t run = container.low; run != kNoRun; run = runs[run].next) {
      for (uint32_t i = 0; i < runs[run].size; ++i, ++place) {
        if (!visit(place, items[runs[run].begin + i])) return;
      }
    }
  }
};

// What a value of kRefused is, for a message: "a set".
std::string_view RefusedKind(const PickleNode& node);

// Where the storage `key` lies. The pickle says that it has `num_bytes`; an error refuses the pickle.
using FindStorage = absl::FunctionRef<absl::StatusOr<StoredBytes>(std::string_view key, int64_t num_bytes)>;

// Local. `pickle` must outlive the result. Memory, errors: as ReadPickle.
absl::StatusOr<PickleGraph> RunPickle(std::string_view pickle, int64_t memory_limit, FindStorage find_storage);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_PICKLE_MACHINE_H_
