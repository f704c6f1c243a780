#include "cohort/trainers/data/dataset_rows.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/row_source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

Dataset ThreeRows() {
  return {.source = "numbers.csv",
          .feature_names = {"a", "b"},
          .target_names = {"y"},
          .num_rows = 3,
          .features = {1, 2, 3, 4, 5, 6},
          .targets = {0, 7, 2}};
}

std::unique_ptr<RowSource> Make(const Dataset& data, TargetKind kind = TargetKind::kNumbers) {
  absl::StatusOr<std::unique_ptr<RowSource>> rows = MakeDatasetRows(data, kind);
  ABSL_CHECK_OK(rows);
  return *std::move(rows);
}

RowBatch Read(const RowSource& source, const std::vector<int64_t>& rows) {
  absl::StatusOr<RowBatch> batch = source.Read(rows);
  ABSL_CHECK_OK(batch);
  return *std::move(batch);
}

TEST(DatasetRowsTest, ReadsRowsInTheOrderAskedForAndAsOftenAsAskedFor) {
  const std::unique_ptr<RowSource> source = Make(ThreeRows());
  const RowBatch batch = Read(*source, {2, 0, 2});
  EXPECT_TRUE(at::equal(batch.features, at::tensor({5.f, 6.f, 1.f, 2.f, 5.f, 6.f}).view({3, 2})));
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({2.f, 0.f, 2.f}).view({3, 1})));
}

TEST(DatasetRowsTest, NoRowsAreTensorsOfNoRows) {
  const RowBatch batch = Read(*Make(ThreeRows()), {});
  EXPECT_THAT(batch.features.sizes(), ElementsAre(0, 2));
  EXPECT_THAT(batch.targets.sizes(), ElementsAre(0, 1));
}

TEST(DatasetRowsTest, ABatchIsMemoryOfItsOwn) {
  const std::unique_ptr<RowSource> source = Make(ThreeRows());
  Read(*source, {0, 1, 2}).features.fill_(9);
  EXPECT_EQ(Read(*source, {0}).features[0][0].item<float>(), 1);
}

TEST(DatasetRowsTest, DescribesTheData) {
  Dataset data = ThreeRows();
  const std::unique_ptr<RowSource> source = Make(data);
  EXPECT_EQ(source->info().name, "numbers.csv");
  EXPECT_EQ(source->num_rows(), 3);
  EXPECT_EQ(source->info().features, (RowFormat{.sizes = {2}, .dtype = at::kFloat}));
  EXPECT_EQ(source->info().targets, (RowFormat{.sizes = {1}, .dtype = at::kFloat}));
  EXPECT_EQ(source->info().checksum, Checksum(data));
  data.checksum = 77;
  EXPECT_EQ(Make(data)->info().checksum, 77);
}

TEST(DatasetRowsTest, AClassIsAnInteger) {
  const std::unique_ptr<RowSource> source = Make(ThreeRows(), TargetKind::kClass);
  EXPECT_EQ(source->info().targets.dtype, at::kLong);
  EXPECT_THAT(source->info().targets.sizes, IsEmpty());
  EXPECT_TRUE(at::equal(Read(*source, {1, 0}).targets, at::tensor({int64_t{7}, int64_t{0}})));
}

TEST(DatasetRowsTest, WhatIsNoClassIsNamedWithItsRow) {
  for (const double value : {-1.0, 0.5, 1e300, std::nan(""), std::numeric_limits<double>::infinity()}) {
    Dataset data = ThreeRows();
    data.targets[2] = value;
    EXPECT_THAT(MakeDatasetRows(data, TargetKind::kClass),
                StatusIs(kInvalid, HasSubstr("is no class; it must be a whole number from 0 on")));
  }
  Dataset data = ThreeRows();
  data.targets[1] = -2;
  EXPECT_THAT(MakeDatasetRows(data, TargetKind::kClass),
              StatusIs(kInvalid, "\"numbers.csv\": row 1: -2 is no class; it must be a whole number from 0 on"));
  data.target_names = {"y", "z"};
  data.targets = {0, 0, 0, 0, 0, 0};
  EXPECT_THAT(MakeDatasetRows(data, TargetKind::kClass),
              StatusIs(kInvalid, HasSubstr("a class is one column, and there are 2 targets")));
}

TEST(DatasetRowsTest, ARowThatIsNotThereIsRefused) {
  const std::unique_ptr<RowSource> source = Make(ThreeRows());
  EXPECT_THAT(source->Read({0, 3}), StatusIs(kInvalid, "\"numbers.csv\": there is no row 3; there are 3, from 0 on"));
  EXPECT_THAT(source->Read({-1}), StatusIs(kInvalid, HasSubstr("no row -1")));
}

TEST(DatasetRowsTest, ATableWithoutRowsIsRefused) {
  EXPECT_THAT(MakeDatasetRows({.source = "empty", .feature_names = {"a"}, .target_names = {"y"}}, TargetKind::kNumbers),
              StatusIs(kInvalid, "\"empty\": there is no row"));
}

}  // namespace
}  // namespace cohort
