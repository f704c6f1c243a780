#include "cohort/trainers/data/row_subset.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/row_source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

std::unique_ptr<RowSource> FourRows() {
  absl::StatusOr<std::unique_ptr<RowSource>> rows = MakeDatasetRows({.source = "numbers",
                                                                     .feature_names = {"a"},
                                                                     .target_names = {"y"},
                                                                     .num_rows = 4,
                                                                     .features = {10, 11, 12, 13},
                                                                     .targets = {0, 1, 2, 3}},
                                                                    TargetKind::kNumbers);
  ABSL_CHECK_OK(rows);
  return *std::move(rows);
}

uint32_t ChecksumOf(const RowSource& source, std::vector<int64_t> rows) {
  absl::StatusOr<std::unique_ptr<RowSource>> subset = MakeRowSubset(source, std::move(rows));
  ABSL_CHECK_OK(subset);
  return (*subset)->info().checksum;
}

TEST(RowSubsetTest, ItsRowsAreThoseOfTheList) {
  const std::unique_ptr<RowSource> all = FourRows();
  absl::StatusOr<std::unique_ptr<RowSource>> some = MakeRowSubset(*all, {3, 1});
  ABSL_ASSERT_OK(some);
  EXPECT_EQ((*some)->num_rows(), 2);
  EXPECT_EQ((*some)->info().features, all->info().features);
  absl::StatusOr<RowBatch> batch = (*some)->Read({1, 0, 1});
  ABSL_ASSERT_OK(batch);
  EXPECT_TRUE(at::equal(batch->features, at::tensor({11.f, 13.f, 11.f}).view({3, 1})));
  EXPECT_TRUE(at::equal(batch->targets, at::tensor({1.f, 3.f, 1.f}).view({3, 1})));
  EXPECT_THAT((*some)->Read({2}), StatusIs(kInvalid, HasSubstr("no row 2; there are 2")));
}

TEST(RowSubsetTest, EachPartHasAChecksumOfItsOwn) {
  const std::unique_ptr<RowSource> all = FourRows();
  EXPECT_EQ(ChecksumOf(*all, {0, 1}), ChecksumOf(*all, {0, 1}));
  EXPECT_NE(ChecksumOf(*all, {0, 1}), ChecksumOf(*all, {1, 0}));
  EXPECT_NE(ChecksumOf(*all, {0, 1}), ChecksumOf(*all, {2, 3}));
  EXPECT_NE(ChecksumOf(*all, {0, 1, 2, 3}), all->info().checksum);
}

TEST(RowSubsetTest, APartOfNothingOrOfWhatIsNotThereIsRefused) {
  const std::unique_ptr<RowSource> all = FourRows();
  EXPECT_THAT(MakeRowSubset(*all, {}), StatusIs(kInvalid, "\"numbers\": a part of no rows"));
  EXPECT_THAT(MakeRowSubset(*all, {1, 4}), StatusIs(kInvalid, HasSubstr("there is no row 4; there are 4, from 0 on")));
  EXPECT_THAT(MakeRowSubset(*all, {-1}), StatusIs(kInvalid, HasSubstr("no row -1")));
}

}  // namespace
}  // namespace cohort
