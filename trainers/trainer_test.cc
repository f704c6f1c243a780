// Runs as 1, 2 and 4 ranks; every TEST body is collective.

#include "cohort/trainers/trainer.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/harness/shared_group.h"
#include "cohort/trainers/data/csv_dataset.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/generated_dataset.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/data/runfile.h"
#include "cohort/trainers/linear_task.h"
#include "cohort/trainers/resume_from.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer_options.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::SharedGroup;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::string_view kOptimizers[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};

using Rows = std::unique_ptr<RowSource>;

Rows Standardized(absl::StatusOr<Dataset> data) {
  ABSL_CHECK_OK(data.status());
  data->checksum = Checksum(*data);
  StandardizeFeatures(*data);
  auto rows = MakeDatasetRows(*data, TargetKind::kNumbers);
  ABSL_CHECK_OK(rows.status());
  return *std::move(rows);
}

Rows Diabetes() {
  const absl::StatusOr<std::string> path = LocateRunfile("", "cohort/trainers/data/diabetes.csv");
  ABSL_CHECK_OK(path.status());
  return Standardized(ReadCsvDataset(*path, {}));
}

Rows Generated(int64_t num_rows = 1000) { return Standardized(GenerateDataset({.num_rows = num_rows})); }

// The same folder on every rank, another one for each name.
TrainerOptions SavingUnder(std::string_view name) {
  TrainerOptions options;
  options.checkpoint_dir = absl::StrCat(::testing::TempDir(), "/", name);
  return options;
}

// What a run's directory shows: without what is hidden, run.json and "latest".
std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name[0] != '.' && name != "run.json" && name != "latest") names.insert(name);
  }
  return names;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<std::string> saved;
  std::vector<std::vector<int64_t>> rows;  // of this rank, by step
  BeginReport begun;
  bool was_complete = false;
  double r2 = 0;
};

absl::StatusOr<TrainerOutcome> TrainLinear(ProcessGroup& group, const RowSource& rows, const TrainerOptions& options,
                                           const TrainerObserver& observer) {
  const absl::StatusOr<std::unique_ptr<Task>> task = MakeLinearTask(rows);
  if (!task.ok()) return task.status();
  return Train(group, rows, **task, options, observer);
}

absl::StatusOr<Outcome> Trained(ProcessGroup& group, const Rows& rows, const TrainerOptions& options) {
  Outcome outcome;
  TrainerObserver observer;
  observer.on_step = [&](const StepReport& step) { outcome.rows.push_back(step.rows); };
  observer.on_epoch = [&](const EpochReport& epoch) { outcome.losses.push_back(epoch.loss); };
  observer.on_export = [&](const SaveReport& save) { outcome.saved.push_back(save.path); };
  observer.on_checkpoint = [&](const CheckpointReport& save) { outcome.saved.push_back(save.checkpoint.path); };
  observer.on_begin = [&](const BeginReport& begun) { outcome.begun = begun; };
  const absl::StatusOr<TrainerOutcome> ended = TrainLinear(group, *rows, options, observer);
  if (!ended.ok()) return ended.status();
  outcome.was_complete = ended->was_complete;
  if (!ended->last.metrics.empty()) outcome.r2 = ended->last.metrics[0];
  return outcome;
}

TEST(TrainerTest, FullBatchTrainingReachesTheLeastSquaresFit) {
  const Rows data = Diabetes();
  TrainerOptions options = SavingUnder("full_batch");
  options.batch_size = data->num_rows();
  options.learning_rate = 0.24;
  options.epochs = options.save_every = 600;
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(outcome);
  // From the textbook; not computed by code of ours.
  EXPECT_NEAR(outcome->r2, 0.51775, 1e-4);
}

// Trains on all ranks together, and on each alone.
void ExpectSameLossTogetherAndAlone(TrainerOptions together) {
  SCOPED_TRACE(absl::StrCat(together.optimizer, ", ", together.batch_size, " rows a step"));
  TrainerOptions alone = together;
  alone.checkpoint_dir = absl::StrCat(together.checkpoint_dir, "_by_rank_", SharedGroup().rank());
  const Rows data = Diabetes();
  const absl::StatusOr<Outcome> ours = Trained(SharedGroup(), data, together);
  ABSL_ASSERT_OK(ours);
  const absl::StatusOr<Outcome> reference = Trained(*ProcessGroup::WorldOfOne(), data, alone);
  ABSL_ASSERT_OK(reference);
  ASSERT_THAT(ours->losses, SizeIs(together.epochs));
  ASSERT_THAT(reference->losses, SizeIs(together.epochs));
  for (int epoch = 0; epoch < together.epochs; ++epoch) {
    EXPECT_NEAR(ours->losses[epoch] / reference->losses[epoch], 1, 1e-5) << "epoch " << epoch;
  }
  EXPECT_NEAR(ours->r2, reference->r2, 1e-5);
}

TEST(TrainerTest, TheLossDoesNotDependOnTheNumberOfRanks) {
  // 442 rows do not divide by 4, nor the last batch, of 26 rows.
  for (const std::string_view optimizer : kOptimizers) {
    TrainerOptions options = SavingUnder(absl::StrCat("same_loss_", optimizer));
    options.optimizer = optimizer;
    ExpectSameLossTogetherAndAlone(options);
  }
}

TEST(TrainerTest, TheLossIsTheSameWhereSomeRanksHaveNoRowInAStep) {
  TrainerOptions options = SavingUnder("empty_shares");
  options.batch_size = 3;
  options.epochs = 2;
  ExpectSameLossTogetherAndAlone(options);
}

TEST(TrainerTest, ABatchLargerThanTheDataIsAllOfThem) {
  TrainerOptions options = SavingUnder("large_batch");
  options.batch_size = std::numeric_limits<int64_t>::max();
  ExpectSameLossTogetherAndAlone(options);
}

TEST(TrainerTest, TheDefaultsFitWellInTenEpochs) {
  for (const std::string_view optimizer : kOptimizers) {
    TrainerOptions options = SavingUnder(absl::StrCat("defaults_", optimizer));
    options.optimizer = optimizer;
    const Rows diabetes = Diabetes();
    absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), diabetes, options);
    ABSL_ASSERT_OK(outcome);
    // The best there is has 0.5178; how near the last steps come depends on the order of the rows.
    EXPECT_GT(outcome->r2, 0.48) << optimizer;

    const Rows generated = Generated();
    options.checkpoint_dir += "_generated";
    outcome = Trained(SharedGroup(), generated, options);
    ABSL_ASSERT_OK(outcome);
    EXPECT_GT(outcome->r2, 0.98) << optimizer;
  }
}

TEST(TrainerTest, SavesTheFirstEveryFifthAndTheLastEpoch) {
  const Rows data = Generated();
  TrainerOptions options = SavingUnder("names/made");
  options.epochs = 8;
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(outcome);
  const std::string folder = std::filesystem::canonical(options.checkpoint_dir);
  EXPECT_THAT(outcome->saved,
              ElementsAre(folder + "/model_epoch_0.pth", folder + "/step_00000032", folder + "/model_epoch_5.pth",
                          folder + "/step_00000192", folder + "/model_epoch_7.pth", folder + "/step_00000256"));
  EXPECT_THAT(NamesIn(folder), ElementsAre("model_epoch_0.pth", "model_epoch_5.pth", "model_epoch_7.pth",
                                           "step_00000032", "step_00000192", "step_00000256"));
}

// Trains 3 epochs straight, and again from every save within them: the same losses, bit for bit.
TEST(TrainerTest, GoesOnFromWithinAnEpochBitForBit) {
  const Rows data = Diabetes();
  for (const std::string_view optimizer : kOptimizers) {
    SCOPED_TRACE(optimizer);
    TrainerOptions options = SavingUnder(absl::StrCat("within_", optimizer));
    options.optimizer = optimizer;
    options.epochs = 3;
    options.save_every_steps = 11;
    const absl::StatusOr<Outcome> straight = Trained(SharedGroup(), data, options);
    ABSL_ASSERT_OK(straight);
    EXPECT_EQ(straight->begun.resumed_from, "");
    for (const auto& [step, epochs, rows] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{11, 0, 352}, {22, 1, 256}, {33, 2, 160}}) {
      TrainerOptions rest = options;
      rest.resume = {.kind = ResumeFrom::Kind::kStep, .step = step};
      const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, rest);
      ABSL_ASSERT_OK(outcome);
      EXPECT_EQ(outcome->begun.step, step);
      EXPECT_EQ(outcome->begun.epochs, epochs);
      EXPECT_EQ(outcome->begun.rows_done, rows);
      EXPECT_THAT(outcome->begun.changes, IsEmpty());
      EXPECT_THAT(outcome->losses, ElementsAreArray(straight->losses.begin() + epochs, straight->losses.end()));
      EXPECT_EQ(outcome->r2, straight->r2);
    }
  }
}

TEST(TrainerTest, ACompleteRunIsNotTrainedAgain) {
  const Rows data = Generated();
  TrainerOptions options = SavingUnder("complete");
  options.epochs = 2;
  absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(outcome);
  EXPECT_FALSE(outcome->was_complete);
  outcome = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(outcome);
  EXPECT_TRUE(outcome->was_complete);
  EXPECT_THAT(outcome->losses, IsEmpty());
  EXPECT_THAT(outcome->saved, IsEmpty());
}

TEST(TrainerTest, ASaveThatFailsIsCountedAndTheLastOneDecides) {
  const Rows data = Generated();
  TrainerOptions options = SavingUnder("failing_saves");
  options.epochs = 3;
  options.save_every = 1;
  if (SharedGroup().is_main()) std::filesystem::create_directories(options.checkpoint_dir + "/model_epoch_1.pth");
  std::vector<std::string> warnings;
  TrainerObserver observer;
  observer.on_warning = [&](std::string_view warning) { warnings.emplace_back(warning); };
  absl::StatusOr<TrainerOutcome> outcome = TrainLinear(SharedGroup(), *data, options, observer);
  ABSL_ASSERT_OK(outcome);
  EXPECT_EQ(outcome->failed_saves, 1);
  if (SharedGroup().is_main()) {
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("the save of model_epoch_1.pth failed: rank 0: ")));
  } else {
    EXPECT_THAT(warnings, IsEmpty());
  }
  // The same, and nothing comes after it.
  options.epochs = 2;
  options.resume.kind = ResumeFrom::Kind::kNone;
  EXPECT_THAT(
      TrainLinear(SharedGroup(), *data, options, observer),
      StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("all 2 epochs are trained, but the last save failed: "),
                                                  HasSubstr("/model_epoch_1.pth\" names a directory"))));
  options.epochs = 3;
  options.stop_if_save_fails = true;
  EXPECT_THAT(TrainLinear(SharedGroup(), *data, options, observer),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/model_epoch_1.pth\" names a directory")));
}

TEST(TrainerTest, AConstantTargetLeavesR2Undefined) {
  absl::StatusOr<Dataset> table = GenerateDataset({});
  ABSL_ASSERT_OK(table);
  for (double& target : table->targets) target = 7;
  const Rows data = Standardized(table);
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, SavingUnder("constant"));
  ABSL_ASSERT_OK(outcome);
  EXPECT_TRUE(std::isnan(outcome->r2));
  EXPECT_LT(outcome->losses.back(), 1e-3);
}

// ---- What each rank uses ----

// Of each epoch, what all ranks have used, from what this rank has: a rank's rows are those at its own places.
TEST(TrainerTest, EveryEpochUsesEveryRowOnceInAnotherOrder) {
  const Rows data = Generated(17);
  TrainerOptions options = SavingUnder("order");
  options.epochs = 3;
  options.batch_size = 4;
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(outcome);
  ASSERT_THAT(outcome->rows, SizeIs(15)) << "every rank makes every step, with a row or without";
  std::set<std::vector<int64_t>> orders;
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::string mine;
    std::vector<int64_t> order;
    for (int step = 0; step < 5; ++step) {
      for (const int64_t row : outcome->rows[5 * epoch + step]) {
        mine.push_back(static_cast<char>(row));
        order.push_back(row);
      }
    }
    orders.insert(order);
    const absl::StatusOr<std::vector<std::string>> all = SharedGroup().GatherBytes("rows", mine, 100);
    ABSL_ASSERT_OK(all);
    std::vector<int> used;
    for (const std::string& rows : *all) used.insert(used.end(), rows.begin(), rows.end());
    if (!SharedGroup().is_main()) continue;
    EXPECT_THAT(used, ::testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
  }
  EXPECT_THAT(orders, SizeIs(3));
  options.resume.kind = ResumeFrom::Kind::kNone;
  const absl::StatusOr<Outcome> again = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(again);
  EXPECT_EQ(again->rows, outcome->rows);
}

TEST(TrainerTest, ARunThatGoesOnUsesTheRowsThatWereLeft) {
  const Rows data = Generated(40);
  TrainerOptions options = SavingUnder("rows_left");
  options.epochs = 3;
  options.batch_size = 4;
  options.save_every_steps = 13;  // 3 steps into epoch 1
  const absl::StatusOr<Outcome> straight = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(straight);
  ASSERT_THAT(straight->rows, SizeIs(30));
  options.resume = {.kind = ResumeFrom::Kind::kStep, .step = 13};
  const absl::StatusOr<Outcome> rest = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(rest);
  EXPECT_EQ(rest->begun.epochs, 1);
  EXPECT_EQ(rest->begun.rows_done, 12);
  EXPECT_THAT(rest->rows, ElementsAreArray(straight->rows.begin() + 13, straight->rows.end()));
}

TEST(TrainerTest, WhatIsHeldOutIsNeverLearnedFrom) {
  const Rows data = Diabetes();
  TrainerOptions options = SavingUnder("held_out");
  options.validation = 0.25;
  options.epochs = 5;
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(outcome);
  EXPECT_EQ(outcome->begun.rows_held_out, 111);  // 110.5
  EXPECT_EQ(outcome->begun.rows_in_epoch, 331);
  for (const std::vector<int64_t>& step : outcome->rows) {
    for (const int64_t row : step) EXPECT_LT(row, 331);
  }
  EXPECT_GT(outcome->r2, 0.35);
  EXPECT_LT(outcome->r2, 0.6);
}

// ---- What makes a step ----

TEST(TrainerTest, AccumulationMakesTheSameStep) {
  const Rows data = Diabetes();
  TrainerOptions options = SavingUnder("accumulate_1");
  options.epochs = 3;
  const absl::StatusOr<Outcome> whole = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(whole);
  for (const int64_t parts : {3, 1000}) {
    options.checkpoint_dir = SavingUnder(absl::StrCat("accumulate_", parts)).checkpoint_dir;
    options.accumulate = parts;
    const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
    ABSL_ASSERT_OK(outcome);
    EXPECT_EQ(outcome->rows, whole->rows);
    for (int epoch = 0; epoch < 3; ++epoch) EXPECT_NEAR(outcome->losses[epoch] / whole->losses[epoch], 1, 1e-5);
    EXPECT_NEAR(outcome->r2, whole->r2, 1e-5);
  }
}

TEST(TrainerTest, ClippedGradientsMakeShorterSteps) {
  const Rows data = Diabetes();
  TrainerOptions options = SavingUnder("clipped");
  options.epochs = 2;
  options.clip_grad_norm = 1;
  const absl::StatusOr<Outcome> clipped = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(clipped);
  // 28 steps of length 0.045 leave the parameters where they were, near 0.
  EXPECT_LT(clipped->r2, -3);
  options.clip_grad_norm = 1e30;
  options.checkpoint_dir += "_loosely";
  const absl::StatusOr<Outcome> loosely = Trained(SharedGroup(), data, options);
  ABSL_ASSERT_OK(loosely);
  EXPECT_GT(loosely->r2, 0.4);
}

// ---- What all ranks must agree on ----

absl::Status Agree(const absl::StatusOr<const RowSource*>& mine) { return AgreeOnRows(SharedGroup(), mine); }

TEST(AgreeOnRowsTest, AllHearOfTheRankThatCouldNotRead) {
  const Rows data = Diabetes();
  absl::StatusOr<const RowSource*> mine = data.get();
  if (SharedGroup().rank() == SharedGroup().world_size() - 1) mine = absl::NotFoundError("cannot read x.csv");
  EXPECT_THAT(Agree(mine), StatusIs(absl::StatusCode::kNotFound, HasSubstr("cannot read x.csv")));
  EXPECT_THAT(SharedGroup().Barrier(), IsOk());
}

TEST(AgreeOnRowsTest, RefusesFewerRowsThanRanks) {
  const Rows data = Generated(3);
  if (SharedGroup().world_size() <= 3) {
    EXPECT_THAT(Agree(data.get()), IsOk());
  } else {
    EXPECT_THAT(Agree(data.get()),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("generated: 3 rows are too few for 4 ranks")));
  }
}

TEST(AgreeOnRowsTest, RefusesDataThatDifferBetweenRanks) {
  absl::StatusOr<Dataset> table = GenerateDataset({});
  ABSL_ASSERT_OK(table);
  if (SharedGroup().rank() == 1) table->targets.back() += 1;
  const Rows data = Standardized(table);
  if (SharedGroup().world_size() == 1) {
    EXPECT_THAT(Agree(data.get()), IsOk());
  } else {
    EXPECT_THAT(Agree(data.get()), StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("rank 1: data differs between ranks: here 1000 rows"),
                                                  HasSubstr("checksum"))));
  }
}

TEST(TrainerTest, RefusesToHoldOutSoMuchThatARankHasNothingToLearnFrom) {
  const Rows data = Generated(4);
  TrainerOptions options = SavingUnder("too_much");
  options.validation = 0.25;
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  if (SharedGroup().world_size() < 4) {
    EXPECT_THAT(outcome, IsOk());
  } else {
    EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kInvalidArgument,
                                  HasSubstr("3 rows to learn from are too few for 4 ranks")));
  }
}

TEST(TrainerTest, RefusesOptionsThatDifferBetweenRanks) {
  const Rows data = Generated();
  TrainerOptions options = SavingUnder("differ");
  if (SharedGroup().rank() == 1) options.epochs = 11;
  const absl::StatusOr<Outcome> outcome = Trained(SharedGroup(), data, options);
  if (SharedGroup().world_size() == 1) {
    EXPECT_THAT(outcome, IsOk());
  } else {
    EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr("rank 1: training differs between ranks: here epochs=11 "),
                                        HasSubstr("on rank 0 epochs=10 "))));
  }
}

}  // namespace
}  // namespace cohort
