#include "cohort/trainers/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/crc/crc32c.h"

namespace cohort {
namespace {

absl::crc32c_t Extend(absl::crc32c_t crc, const std::vector<double>& values) {
  return absl::ExtendCrc32c(
      crc, std::string_view(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)));
}

absl::crc32c_t Extend(absl::crc32c_t crc, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    crc = absl::ExtendCrc32c(crc, name);
    crc = absl::ExtendCrc32c(crc, std::string_view("\n", 1));  // {"ab"} is not {"a", "b"}
  }
  return crc;
}

}  // namespace

void StandardizeFeatures(Dataset& data) {
  const size_t width = data.feature_names.size();
  for (size_t column = 0; column < width; ++column) {
    double sum = 0, least = data.features[column], most = least;
    for (size_t i = column; i < data.features.size(); i += width) {
      sum += data.features[i];
      least = std::min(least, data.features[i]);
      most = std::max(most, data.features[i]);
    }
    const double mean = sum / static_cast<double>(data.num_rows);
    double squares = 0;
    for (size_t i = column; i < data.features.size(); i += width) {
      squares += (data.features[i] - mean) * (data.features[i] - mean);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(data.num_rows));
    // Not by the deviation alone: the mean of equal numbers may be off by a rounding error, which would be scaled up
    // to 1.
    const bool constant = least == most || deviation == 0;
    for (size_t i = column; i < data.features.size(); i += width) {
      data.features[i] = constant ? 0 : (data.features[i] - mean) / deviation;
    }
  }
}

double TargetVariation(const Dataset& data) {
  const size_t width = data.target_names.size();
  double variation = 0;
  for (size_t column = 0; column < width; ++column) {
    double sum = 0;
    for (size_t i = column; i < data.targets.size(); i += width) sum += data.targets[i];
    const double mean = sum / static_cast<double>(data.num_rows);
    for (size_t i = column; i < data.targets.size(); i += width) {
      variation += (data.targets[i] - mean) * (data.targets[i] - mean);
    }
  }
  return variation;
}

uint32_t Checksum(const Dataset& data) {
  absl::crc32c_t crc{0};
  crc = Extend(crc, data.feature_names);
  crc = absl::ExtendCrc32c(crc, std::string_view("\n", 1));  // a feature is not a target
  crc = Extend(crc, data.target_names);
  crc = Extend(crc, data.features);
  crc = Extend(crc, data.targets);
  return static_cast<uint32_t>(crc);
}

}  // namespace cohort
