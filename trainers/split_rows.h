// File: split_rows.h
//
// SplitRows: which rows are held out, to say how good a model is on what it has not seen.

#ifndef COHORT_TRAINERS_SPLIT_ROWS_H_
#define COHORT_TRAINERS_SPLIT_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort {

struct RowSplit {
  std::vector<int64_t> learned, held_out;  // each in ascending order; together every row once
};

// Local. Holds out the share `fraction`, at least 0 and below 1, of the rows 0 to num_rows - 1: the first
// round(fraction * num_rows) of at::randperm(num_rows) with a CPU generator that is seeded with 20230607. So it depends
// on these two numbers alone, not on a run's seed or ranks, and of two fractions the smaller holds out a part of the
// other's.
//
// Errors:
//   InvalidArgument      with a fraction above 0, one of the two is empty (says how many rows there are)
//   ResourceExhausted    no memory
absl::StatusOr<RowSplit> SplitRows(int64_t num_rows, double fraction);

}  // namespace cohort

#endif  // COHORT_TRAINERS_SPLIT_ROWS_H_
