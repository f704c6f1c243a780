// File: memory_budget.h
//
// MemoryBudget: what reading a file of unknown origin may take.

#ifndef COHORT_CHECKPOINT_INTERNAL_MEMORY_BUDGET_H_
#define COHORT_CHECKPOINT_INTERNAL_MEMORY_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {

// Counts what a reader holds. A few bytes of a file can ask for many bytes of memory (an empty list is two characters),
// so a reader charges for what it makes, before it makes it, and gives back what it frees.
class MemoryBudget {
 public:
  // For a file of `file_bytes`: as much as the file, and this much more.
  static constexpr int64_t kBeyondFile = 48 << 20;
  explicit MemoryBudget(int64_t file_bytes) : limit_(file_bytes + kBeyondFile) {}

  // `num_bytes` is at most the file's size, by a small factor. Errors: InvalidArgument.
  absl::Status Charge(int64_t num_bytes) {
    if (num_bytes > limit_ - used_) {
      return absl::InvalidArgumentError(
          absl::StrCat("what it describes would take more than ", limit_,
                       " bytes of memory (the file's size and 48 MiB) beside the tensors' data"));
    }
    used_ += num_bytes;
    return absl::OkStatus();
  }
  void Refund(int64_t num_bytes) { used_ -= num_bytes; }

 private:
  int64_t limit_;
  int64_t used_ = 0;
};

// What the memory allocator adds to a block at most: its own part, and rounding up.
inline constexpr int64_t kBlockBytes = 24;

// What these take beside sizeof.
inline int64_t HeapBytes(const std::string& text) {
  static const size_t kInline = std::string().capacity();
  return text.capacity() <= kInline ? 0 : static_cast<int64_t>(text.capacity()) + kBlockBytes;
}
template <typename Item>
int64_t HeapBytes(const std::vector<Item>& items) {
  return items.capacity() == 0 ? 0 : static_cast<int64_t>(items.capacity() * sizeof(Item)) + kBlockBytes;
}

// Makes room for `size` items, and charges for it, the old place being given back after the new one is taken.
template <typename Item>
absl::Status ReserveExactly(std::vector<Item>& items, size_t size, MemoryBudget& budget) {
  const int64_t held = HeapBytes(items);
  ABSL_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(size * sizeof(Item)) + kBlockBytes));
  items.reserve(size);
  budget.Refund(held);
  return absl::OkStatus();
}
template <typename Item>
absl::Status MakeRoomForOne(std::vector<Item>& items, MemoryBudget& budget) {
  if (items.size() < items.capacity()) return absl::OkStatus();
  return ReserveExactly(items, items.empty() ? 1 : 2 * items.size(), budget);
}

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_MEMORY_BUDGET_H_
