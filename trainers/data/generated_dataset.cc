#include "cohort/trainers/data/generated_dataset.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

absl::Status CheckSize(std::string_view what, int64_t value) {
  if (value >= 1 && value <= kMaxGeneratedValues) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("generated data with ", value, " ", what, ": must be from 1 to ", kMaxGeneratedValues));
}

}  // namespace

absl::StatusOr<Dataset> GenerateDataset(const GeneratedDatasetOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckSize("rows", options.num_rows));
  ABSL_RETURN_IF_ERROR(CheckSize("features", options.num_features));
  ABSL_RETURN_IF_ERROR(CheckSize("outputs", options.num_targets));
  const int64_t width = options.num_features + options.num_targets;
  if (width > kMaxGeneratedValues / options.num_rows ||
      options.num_features > kMaxGeneratedValues / options.num_targets) {
    return absl::InvalidArgumentError(absl::StrCat("generated data with ", options.num_rows, " rows, ",
                                                   options.num_features, " features and ", options.num_targets,
                                                   " outputs: more than ", kMaxGeneratedValues, " numbers"));
  }

  Dataset data;
  data.source = "generated";
  data.num_rows = options.num_rows;
  for (int64_t i = 0; i < options.num_features; ++i) data.feature_names.push_back(absl::StrCat("x", i));
  for (int64_t i = 0; i < options.num_targets; ++i) data.target_names.push_back(absl::StrCat("y", i));

  std::mt19937_64 random(options.seed);
  std::normal_distribution<double> normal;
  std::vector<double> weights(options.num_features * options.num_targets);
  // Scaled so that every target has a deviation of about 1, whatever the number of features.
  for (double& weight : weights) weight = normal(random) / std::sqrt(static_cast<double>(options.num_features));
  data.features.reserve(options.num_rows * options.num_features);
  data.targets.reserve(options.num_rows * options.num_targets);
  for (int64_t row = 0; row < options.num_rows; ++row) {
    for (int64_t i = 0; i < options.num_features; ++i) data.features.push_back(normal(random));
    const double* x = data.features.data() + row * options.num_features;
    for (int64_t target = 0; target < options.num_targets; ++target) {
      double y = 0.1 * normal(random);
      for (int64_t i = 0; i < options.num_features; ++i) y += weights[target * options.num_features + i] * x[i];
      data.targets.push_back(y);
    }
  }
  return data;
}

}  // namespace cohort
