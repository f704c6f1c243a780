// One rank alone cannot go on: every rank gets its error, at once. Each TEST has a group of its own, which it poisons.
// Every TEST body is collective.

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "ATen/core/Tensor.h"
#include "ATen/core/grad_mode.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/generated_dataset.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/linear_task.h"
#include "cohort/trainers/split_rows.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer.h"
#include "cohort/trainers/trainer_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// 64 rows, of which this rank cannot read those that are bad, or gets numbers there that are none.
class BadRows final : public RowSource {
 public:
  enum class How { kUnreadable, kNotFinite };

  BadRows(std::unique_ptr<RowSource> good, std::function<bool(int64_t row)> is_bad, How how)
      : RowSource(good->info()), good_(std::move(good)), is_bad_(std::move(is_bad)), how_(how) {}
  BadRows(std::unique_ptr<RowSource> good, int64_t first_bad, How how)
      : BadRows(
            std::move(good), [first_bad](int64_t row) { return row >= first_bad; }, how) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    absl::StatusOr<RowBatch> read = good_->Read(rows);
    if (!read.ok()) return read.status();
    batch = *std::move(read);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!is_bad_(rows[i])) continue;
      if (how_ == How::kUnreadable) return absl::DataLossError(absl::StrCat("row ", rows[i], " cannot be read"));
      batch.features.select(0, static_cast<int64_t>(i)).fill_(std::nan(""));
    }
    return absl::OkStatus();
  }

  const std::unique_ptr<RowSource> good_;
  const std::function<bool(int64_t row)> is_bad_;
  const How how_;
};

std::unique_ptr<RowSource> Good() {
  const absl::StatusOr<Dataset> table = GenerateDataset({.num_rows = 64});
  ABSL_CHECK_OK(table.status());
  auto rows = MakeDatasetRows(*table, TargetKind::kNumbers);
  ABSL_CHECK_OK(rows.status());
  return *std::move(rows);
}

class TrainerFailureTest : public ::testing::Test {
 protected:
  TrainerFailureTest() {
    auto connected =
        InitProcessGroup({.backend = "gloo", .init_timeout = absl::Seconds(60), .timeout = absl::Minutes(10)});
    ABSL_CHECK_OK(connected.status());
    group_ = *std::move(connected);
    rows_ = Good();
    options_.batch_size = 8;
    options_.checkpoint_dir =
        absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  }

  bool IsLast() const { return group_->rank() == group_->world_size() - 1; }
  std::string LastRank() const { return absl::StrCat("rank ", group_->world_size() - 1, ": "); }

  absl::Status Trains(const RowSource& rows, const TrainerObserver& observer = {}) {
    auto task = MakeLinearTask(*rows_);
    ABSL_CHECK_OK(task.status());
    return Train(*group_, rows, **task, options_, observer).status();
  }

  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<RowSource> rows_;
  TrainerOptions options_;
};

TEST_F(TrainerFailureTest, RowsThatOneRankCannotReadAreTheErrorOfAll) {
  const BadRows rows(Good(), IsLast() ? 40 : 64, BadRows::How::kUnreadable);
  EXPECT_THAT(Trains(rows),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(LastRank()), HasSubstr(" cannot be read"))));
}

TEST_F(TrainerFailureTest, RowsThatAreNoNumbersOnOneRankAreNamedAsWhatIsWrong) {
  const BadRows rows(Good(), IsLast() ? 40 : 64, BadRows::How::kNotFinite);
  EXPECT_THAT(Trains(rows), StatusIs(absl::StatusCode::kInvalidArgument,
                                     AllOf(HasSubstr(absl::StrCat(LastRank(), "the features of row ")),
                                           HasSubstr("are not finite numbers"))));
}

TEST_F(TrainerFailureTest, WhatLibTorchThrowsOnOneRankIsTheErrorOfAll) {
  TrainerObserver observer;
  observer.on_epoch = [&](const EpochReport& epoch) {
    // Without gradients LibTorch throws in the next step.
    if (epoch.epoch == 2 && IsLast()) at::GradMode::set_enabled(false);
  };
  const absl::Status status = Trains(*rows_, observer);
  at::GradMode::set_enabled(true);
  EXPECT_THAT(status, ::testing::Not(absl_testing::IsOk()));
  EXPECT_THAT(status.message(), HasSubstr(LastRank()));
  // What was saved before is there.
  EXPECT_TRUE(std::filesystem::exists(options_.checkpoint_dir + "/step_00000008"));
}

TEST_F(TrainerFailureTest, ALearningRateThatIsTooHighIsNamedAndNothingIsSaved) {
  options_.learning_rate = 1e38;
  EXPECT_THAT(Trains(*rows_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate=1e+38 is too high for this data")));
  EXPECT_FALSE(std::filesystem::exists(options_.checkpoint_dir + "/latest"));
}

TEST_F(TrainerFailureTest, IfOnlyTheEvaluationShowsItTheGroupIsStillOfUse) {
  options_.learning_rate = 1e38;
  options_.batch_size = 64;  // an epoch of one step
  EXPECT_THAT(Trains(*rows_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("in evaluation"), HasSubstr("learning_rate=1e+38 is too high for this data"))));
  EXPECT_FALSE(std::filesystem::exists(options_.checkpoint_dir + "/latest"));
  EXPECT_THAT(group_->Barrier(), absl_testing::IsOk());
  EXPECT_THAT(group_->Shutdown(), absl_testing::IsOk());  // the others may still be in the barrier
}

TEST_F(TrainerFailureTest, RowsThatAreNoNumbersAreNamedByTheirPlaceInTheData) {
  options_.validation = 0.25;
  const auto split = SplitRows(64, 0.25);
  ABSL_ASSERT_OK(split);
  const int64_t held_out = split->held_out[7], learned = split->learned[30];
  ASSERT_NE(held_out, 7);
  ASSERT_NE(learned, 30);
  const BadRows measured(
      Good(), [&](int64_t row) { return row == held_out; }, BadRows::How::kNotFinite);
  EXPECT_THAT(Trains(measured),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("the features of row ", held_out, " are not finite numbers"))));
  const BadRows trained(
      Good(), [&](int64_t row) { return row == learned; }, BadRows::How::kNotFinite);
  EXPECT_THAT(Trains(trained),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(absl::StrCat("the features of row ", learned, " are not finite numbers"))));
}

TEST_F(TrainerFailureTest, AStepThatIsNoFloatIsTheLearningRates) {
  options_.optimizer = "adam";
  options_.learning_rate = 1e38;
  EXPECT_THAT(Trains(*rows_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate=1e+38 is too high for this data")));
}

TEST_F(TrainerFailureTest, AGradientThatIsTooLongToBeCutIsAnError) {
  options_.learning_rate = 1e30;
  options_.clip_grad_norm = 1e30;
  EXPECT_THAT(Trains(*rows_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no longer a finite number")));
}

}  // namespace
}  // namespace cohort
