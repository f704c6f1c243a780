// File: generated_dataset.h
//
// GenerateDataset: a table that a linear model fits well, for trying things out.

#ifndef COHORT_TRAINERS_DATA_GENERATED_DATASET_H_
#define COHORT_TRAINERS_DATA_GENERATED_DATASET_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>

#include "absl/status/statusor.h"
#include "cohort/trainers/data/dataset.h"

namespace cohort {

struct GeneratedDatasetOptions {
  int64_t num_rows = 1000;
  int64_t num_features = 10;
  int64_t num_targets = 2;
  uint64_t seed = 0;
};

// Local. Targets are a random linear function of normally distributed features, plus noise of a tenth of the function's
// deviation: the best fit has R2 about 0.99. The same options give the same table in every process of one build.
//
// Errors:
//   InvalidArgument  a number below 1, or a table of more than kMaxGeneratedValues (says which, and what is allowed)
absl::StatusOr<Dataset> GenerateDataset(const GeneratedDatasetOptions& options);

// 1 GiB.
inline constexpr int64_t kMaxGeneratedValues = int64_t{1} << 27;

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_GENERATED_DATASET_H_
