#include "cohort/trainers/data/generated_dataset.h"

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/data/dataset.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(GenerateDatasetTest, HasTheSizesAskedFor) {
  const absl::StatusOr<Dataset> data = GenerateDataset({.num_rows = 5, .num_features = 3, .num_targets = 2});
  ABSL_ASSERT_OK(data);
  EXPECT_EQ(data->num_rows, 5);
  EXPECT_THAT(data->feature_names, ElementsAre("x0", "x1", "x2"));
  EXPECT_THAT(data->target_names, ElementsAre("y0", "y1"));
  EXPECT_EQ(data->features.size(), 15);
  EXPECT_EQ(data->targets.size(), 10);
}

TEST(GenerateDatasetTest, FollowsTheSeed) {
  const absl::StatusOr<Dataset> first = GenerateDataset({.seed = 1}), again = GenerateDataset({.seed = 1}),
                                other = GenerateDataset({.seed = 2});
  ABSL_ASSERT_OK(first);
  ABSL_ASSERT_OK(again);
  ABSL_ASSERT_OK(other);
  EXPECT_EQ(Checksum(*first), Checksum(*again));
  EXPECT_NE(Checksum(*first), Checksum(*other));
}

TEST(GenerateDatasetTest, RefusesSizesBelowOneOrTooLargeToHold) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(GenerateDataset({.num_rows = 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 rows")));
  EXPECT_THAT(GenerateDataset({.num_features = -3}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("-3 features")));
  EXPECT_THAT(GenerateDataset({.num_targets = kMost}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("outputs")));
  EXPECT_THAT(GenerateDataset({.num_rows = 1 << 20, .num_features = 1 << 20}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 134217728 numbers")));
}

}  // namespace
}  // namespace cohort
