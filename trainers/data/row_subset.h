// File: row_subset.h
//
// MakeRowSubset: some rows of a RowSource as a source of their own, such as those that a model is validated with.

#ifndef COHORT_TRAINERS_DATA_ROW_SUBSET_H_
#define COHORT_TRAINERS_DATA_ROW_SUBSET_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {

// Local. Row i of the result is row rows[i] of `source`, which must outlive it. The checksum depends on the source's
// and on the rows, so that a position in one part of a data set is refused for another part.
//
// Errors:
//   InvalidArgument    no row; one that is not there (which, and how many there are)
absl::StatusOr<std::unique_ptr<RowSource>> MakeRowSubset(const RowSource& source, std::vector<int64_t> rows);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_ROW_SUBSET_H_
