// File: dataset_rows.h
//
// MakeDatasetRows: a Dataset (from a CSV file, generated) as a RowSource.

#ifndef COHORT_TRAINERS_DATA_DATASET_ROWS_H_
#define COHORT_TRAINERS_DATA_DATASET_ROWS_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <memory>

#include "absl/status/statusor.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {

enum class TargetKind {
  kNumbers,  // floats, [columns]
  kClass,  // the one column is a class, a whole number from 0 on: an int64 of no dimensions, as cross_entropy takes it
};

// Local. The rows of `data`, which need not live on: features are floats, [columns]. The checksum is that of the data,
// or Checksum(data) if nobody took it; the name is its source.
//
// Errors:
//   InvalidArgument    there is no row; with kClass, several target columns, or a target that is no class (its row
//                      and value; classes end below 2^53)
//   any code           what LibTorch threw, such as for want of memory
absl::StatusOr<std::unique_ptr<RowSource>> MakeDatasetRows(const Dataset& data, TargetKind kind);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_DATASET_ROWS_H_
