// File: row_source.h
//
// RowSource: rows of features and targets, wherever they are kept, as tensors.

#ifndef COHORT_TRAINERS_DATA_ROW_SOURCE_H_
#define COHORT_TRAINERS_DATA_ROW_SOURCE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/ScalarType.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// What one row has of features, or of targets.
struct RowFormat {
  std::vector<int64_t> sizes;  // empty: one number
  at::ScalarType dtype = at::kFloat;

  friend bool operator==(const RowFormat&, const RowFormat&) = default;

  int64_t num_values() const;    // the product of the sizes
  std::string ToString() const;  // for people: "[3, 8] of Float"
};

// Some rows, on the CPU, in memory of their own: [n, sizes...].
struct RowBatch {
  at::Tensor features, targets;
};

// What describes a source: the same, but for the name, wherever the same data are.
struct RowSourceInfo {
  std::string name;  // for people: a path, or "generated"
  int64_t num_rows = 0;
  RowFormat features, targets;
  uint32_t checksum = 0;  // differs, but for one case in four billion, between two data sets
};

// Everything is local and thread-safe.
class RowSource {
 public:
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  const RowSourceInfo& info() const { return info_; }
  int64_t num_rows() const { return info_.num_rows; }

  // These rows, in this order; the same one may occur twice. No rows give tensors of no rows, with the rows' own sizes.
  // Blocks as long as the disk does, if there is one.
  //
  // Errors:
  //   InvalidArgument      there is no such row (which, and how many there are)
  //   ResourceExhausted    no memory for the batch
  //   and those of the source, with its name
  absl::StatusOr<RowBatch> Read(absl::Span<const int64_t> rows) const;

 protected:
  explicit RowSource(RowSourceInfo info) : info_(std::move(info)) {}

 private:
  // Fills contiguous tensors of the right sizes. The rows are there.
  virtual absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const = 0;

  const RowSourceInfo info_;
};

// Reads the rows from `begin` to before `end`, a thousand at a time, and shows them to `visit` with the number of the first.
// Ends with the first error, of reading or of `visit`.
absl::Status VisitRows(const RowSource& rows, int64_t begin, int64_t end,
                       absl::FunctionRef<absl::Status(int64_t first, const RowBatch& batch)> visit);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_ROW_SOURCE_H_
