// File: dataset.h
//
// Dataset: the rows a trainer learns from, in memory.

#ifndef COHORT_TRAINERS_DATA_DATASET_H_
#define COHORT_TRAINERS_DATA_DATASET_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <string>
#include <vector>

namespace cohort {

// A table of numbers: in each row some features and the targets to predict from them. Every rank holds the whole table
// and trains on its share of the rows.
struct Dataset {
  // Where the data came from, for people: a path, or "generated".
  std::string source;
  std::vector<std::string> feature_names;
  std::vector<std::string> target_names;
  int64_t num_rows = 0;
  std::vector<double> features;  // by row: num_rows x feature_names.size()
  std::vector<double> targets;   // by row: num_rows x target_names.size()
  uint32_t checksum = 0;         // Checksum() of the table as it was read, before anything was scaled; 0: nobody took it

  int64_t num_features() const { return static_cast<int64_t>(feature_names.size()); }
  int64_t num_targets() const { return static_cast<int64_t>(target_names.size()); }
};

// Shifts and scales every feature to mean 0 and standard deviation 1 over all rows (the population's deviation: divided
// by the number of rows). A feature that is the same in all rows says nothing, and becomes 0. Needs at least one row.
void StandardizeFeatures(Dataset& data);

// How much the targets vary: the sum, over all rows and targets, of the squared distance from the target's mean.
double TargetVariation(const Dataset& data);

// A number that differs, but for one case in four billion, between two tables that differ in a name or a value. The
// same in every process.
uint32_t Checksum(const Dataset& data);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_DATASET_H_
