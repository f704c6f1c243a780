#include "cohort/trainers/data/dataset.h"

#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

Dataset TwoFeatures(std::vector<double> features) {
  Dataset data;
  data.source = "test";
  data.feature_names = {"a", "b"};
  data.target_names = {"y"};
  data.num_rows = static_cast<int64_t>(features.size()) / 2;
  data.targets.assign(data.num_rows, 1);
  data.features = std::move(features);
  return data;
}

TEST(StandardizeFeaturesTest, MakesMeanZeroAndPopulationDeviationOne) {
  Dataset data = TwoFeatures({1, 10, 3, 30, 5, 50, 7, 70});
  StandardizeFeatures(data);
  // Of 1, 3, 5, 7: mean 4, deviation the root of (9 + 1 + 1 + 9) / 4.
  const double far = 3 / std::sqrt(5.0), near = 1 / std::sqrt(5.0);
  const auto is = [](double value) { return DoubleNear(value, 1e-15); };
  EXPECT_THAT(data.features,
              ElementsAre(is(-far), is(-far), is(-near), is(-near), is(near), is(near), is(far), is(far)));
  EXPECT_THAT(data.targets, ElementsAre(1, 1, 1, 1));
}

TEST(StandardizeFeaturesTest, AConstantFeatureBecomesZero) {
  // The sum of these three is not exactly three times one of them.
  Dataset data = TwoFeatures({0.1, 1, 0.1, 2, 0.1, 3});
  StandardizeFeatures(data);
  EXPECT_EQ(data.features[0], 0);
  EXPECT_EQ(data.features[2], 0);
  EXPECT_EQ(data.features[4], 0);
}

TEST(StandardizeFeaturesTest, NumbersTooCloseForADeviationBecomeZero) {
  Dataset data = TwoFeatures({1e-200, 1, 2e-200, 2});
  StandardizeFeatures(data);
  EXPECT_EQ(data.features[0], 0);
  EXPECT_EQ(data.features[2], 0);
}

TEST(TargetVariationTest, AddsUpOverTheTargetsEachAroundItsOwnMean) {
  Dataset data;
  data.target_names = {"y", "z"};
  data.num_rows = 3;
  data.targets = {1, 100, 2, 100, 6, 100};
  EXPECT_DOUBLE_EQ(TargetVariation(data), 4 + 1 + 9);
}

TEST(ChecksumTest, DiffersWithEveryNameAndValue) {
  const Dataset data = TwoFeatures({1, 2, 3, 4});
  Dataset same = data;
  same.source = "elsewhere";
  EXPECT_EQ(Checksum(data), Checksum(same));
  Dataset other = data;
  other.features[3] = std::nextafter(4, 5);
  EXPECT_NE(Checksum(data), Checksum(other));
  other = data;
  other.targets[0] = 2;
  EXPECT_NE(Checksum(data), Checksum(other));
  other = data;
  other.feature_names = {"ab", ""};
  EXPECT_NE(Checksum(data), Checksum(other));
  other = data;
  other.target_names = {"z"};
  EXPECT_NE(Checksum(data), Checksum(other));
}

}  // namespace
}  // namespace cohort
