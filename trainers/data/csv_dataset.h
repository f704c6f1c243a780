// File: csv_dataset.h
//
// ReadCsvDataset: a table of numbers from a CSV file.

#ifndef COHORT_TRAINERS_DATA_CSV_DATASET_H_
#define COHORT_TRAINERS_DATA_CSV_DATASET_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/trainers/data/dataset.h"

namespace cohort {

// Local. Reads all of `path`. `targets` names the columns to predict, in that order; empty means the last column. All
// other columns are features, in the file's order.
//
// The format is strict, because a number read wrongly is a model trained wrongly:
//   - the first line names the columns; names are not empty, not numbers and not repeated;
//   - every other line has one number for each of them; no line is empty;
//   - fields are separated by commas and not quoted; blanks around them do not count; lines end in LF or CRLF;
//   - numbers are finite and fit a float: NaN and infinity would spread to every parameter at once.
//
// Errors:
//   InvalidArgument   anything else in the file: its path, line, column, and what stands there; no row at all; a
//                     target that is no column (lists the columns) or named twice; no column left as a feature; a path that is
//                     no regular file, such as a pipe
//   NotFound, PermissionDenied, FailedPrecondition (a directory), ...  by the operating system's cause, with the path
absl::StatusOr<Dataset> ReadCsvDataset(const std::string& path, absl::Span<const std::string> targets);

// Longest line that is read: what is longer is no table of numbers, and must not fill the memory.
inline constexpr size_t kMaxCsvLineBytes = size_t{1} << 20;

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_CSV_DATASET_H_
