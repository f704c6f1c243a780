// Runs as 1, 2 and 4 ranks; every TEST body is collective.

#include "cohort/trainers/linear_trainer.h"

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/harness/shared_group.h"
#include "cohort/trainers/data/csv_dataset.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/generated_dataset.h"
#include "cohort/trainers/data/runfile.h"
#include "cohort/trainers/linear_trainer_options.h"
#include "cohort/trainers/resume_from.h"
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

absl::StatusOr<Dataset> ReadDiabetes() {
  const absl::StatusOr<std::string> path = LocateRunfile("", "cohort/trainers/data/diabetes.csv");
  if (!path.ok()) return path.status();
  return ReadCsvDataset(*path, {});
}

// The same folder on every rank, another one for each name.
LinearTrainerOptions SavingUnder(std::string_view name) {
  LinearTrainerOptions options;
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
  BeginReport begun;
  bool was_complete = false;
  double r2 = 0;
};

absl::StatusOr<Outcome> Train(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options) {
  Outcome outcome;
  LinearTrainerObserver observer;
  observer.on_epoch = [&](const EpochReport& epoch) { outcome.losses.push_back(epoch.loss); };
  observer.on_export = [&](const SaveReport& save) { outcome.saved.push_back(save.path); };
  observer.on_checkpoint = [&](const CheckpointReport& save) { outcome.saved.push_back(save.checkpoint.path); };
  observer.on_begin = [&](const BeginReport& begun) { outcome.begun = begun; };
  const absl::StatusOr<LinearTrainerOutcome> ended = TrainLinear(group, data, options, observer);
  if (!ended.ok()) return ended.status();
  outcome.was_complete = ended->was_complete;
  outcome.r2 = ended->last.r2;
  return outcome;
}

TEST(LinearTrainerTest, FullBatchTrainingReachesTheLeastSquaresFit) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), ReadDiabetes());
  ABSL_ASSERT_OK(data);
  LinearTrainerOptions options = SavingUnder("full_batch");
  options.batch_size = data->num_rows;
  options.learning_rate = 0.24;
  options.epochs = options.save_every = 600;
  const absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *data, options);
  ABSL_ASSERT_OK(outcome);
  // From the textbook; not computed by code of ours.
  EXPECT_NEAR(outcome->r2, 0.51775, 1e-4);
}

// Trains on all ranks together, and on each alone.
void ExpectSameLossTogetherAndAlone(LinearTrainerOptions together) {
  SCOPED_TRACE(absl::StrCat(together.optimizer, ", ", together.batch_size, " rows a step"));
  LinearTrainerOptions alone = together;
  alone.checkpoint_dir = absl::StrCat(together.checkpoint_dir, "_by_rank_", SharedGroup().rank());
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), ReadDiabetes());
  ABSL_ASSERT_OK(data);
  const absl::StatusOr<Outcome> ours = Train(SharedGroup(), *data, together);
  ABSL_ASSERT_OK(ours);
  const absl::StatusOr<Outcome> reference = Train(*ProcessGroup::WorldOfOne(), *data, alone);
  ABSL_ASSERT_OK(reference);
  ASSERT_THAT(ours->losses, SizeIs(together.epochs));
  ASSERT_THAT(reference->losses, SizeIs(together.epochs));
  for (int epoch = 0; epoch < together.epochs; ++epoch) {
    EXPECT_NEAR(ours->losses[epoch] / reference->losses[epoch], 1, 1e-5) << "epoch " << epoch;
  }
  EXPECT_NEAR(ours->r2, reference->r2, 1e-5);
}

TEST(LinearTrainerTest, TheLossDoesNotDependOnTheNumberOfRanks) {
  // 442 rows do not divide by 4, nor the last batch, of 26 rows.
  for (const std::string_view optimizer : kOptimizers) {
    LinearTrainerOptions options = SavingUnder(absl::StrCat("same_loss_", optimizer));
    options.optimizer = optimizer;
    ExpectSameLossTogetherAndAlone(options);
  }
}

TEST(LinearTrainerTest, TheLossIsTheSameWhereSomeRanksHaveNoRowInAStep) {
  LinearTrainerOptions options = SavingUnder("empty_shares");
  options.batch_size = 3;
  options.epochs = 2;
  ExpectSameLossTogetherAndAlone(options);
}

TEST(LinearTrainerTest, ABatchLargerThanTheDataIsAllOfThem) {
  LinearTrainerOptions options = SavingUnder("large_batch");
  options.batch_size = std::numeric_limits<int64_t>::max();
  ExpectSameLossTogetherAndAlone(options);
}

TEST(LinearTrainerTest, TheDefaultsFitWellInTenEpochs) {
  for (const std::string_view optimizer : kOptimizers) {
    LinearTrainerOptions options = SavingUnder(absl::StrCat("defaults_", optimizer));
    options.optimizer = optimizer;
    const absl::StatusOr<Dataset> diabetes = AgreeOnDataset(SharedGroup(), ReadDiabetes());
    ABSL_ASSERT_OK(diabetes);
    absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *diabetes, options);
    ABSL_ASSERT_OK(outcome);
    EXPECT_GT(outcome->r2, 0.5) << optimizer;

    const absl::StatusOr<Dataset> generated = AgreeOnDataset(SharedGroup(), GenerateDataset({}));
    ABSL_ASSERT_OK(generated);
    options.checkpoint_dir += "_generated";
    outcome = Train(SharedGroup(), *generated, options);
    ABSL_ASSERT_OK(outcome);
    EXPECT_GT(outcome->r2, 0.98) << optimizer;
  }
}

TEST(LinearTrainerTest, SavesTheFirstEveryFifthAndTheLastEpoch) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), GenerateDataset({}));
  ABSL_ASSERT_OK(data);
  LinearTrainerOptions options = SavingUnder("names/made");
  options.epochs = 8;
  const absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *data, options);
  ABSL_ASSERT_OK(outcome);
  const std::string folder = std::filesystem::canonical(options.checkpoint_dir);
  EXPECT_THAT(outcome->saved,
              ElementsAre(folder + "/model_epoch_0.pth", folder + "/step_00000032", folder + "/model_epoch_5.pth",
                          folder + "/step_00000192", folder + "/model_epoch_7.pth", folder + "/step_00000256"));
  EXPECT_THAT(NamesIn(folder), ElementsAre("model_epoch_0.pth", "model_epoch_5.pth", "model_epoch_7.pth",
                                           "step_00000032", "step_00000192", "step_00000256"));
}

// Trains 3 epochs straight, and again from every save within them: the same losses, bit for bit.
TEST(LinearTrainerTest, GoesOnFromWithinAnEpochBitForBit) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), ReadDiabetes());
  ABSL_ASSERT_OK(data);
  for (const std::string_view optimizer : kOptimizers) {
    SCOPED_TRACE(optimizer);
    LinearTrainerOptions options = SavingUnder(absl::StrCat("within_", optimizer));
    options.optimizer = optimizer;
    options.epochs = 3;
    options.save_every_steps = 11;
    const absl::StatusOr<Outcome> straight = Train(SharedGroup(), *data, options);
    ABSL_ASSERT_OK(straight);
    EXPECT_EQ(straight->begun.resumed_from, "");
    for (const auto& [step, epochs, rows] :
         std::vector<std::tuple<int64_t, int64_t, int64_t>>{{11, 0, 352}, {22, 1, 256}, {33, 2, 160}}) {
      LinearTrainerOptions rest = options;
      rest.resume = {.kind = ResumeFrom::Kind::kStep, .step = step};
      const absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *data, rest);
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

TEST(LinearTrainerTest, ACompleteRunIsNotTrainedAgain) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), GenerateDataset({}));
  ABSL_ASSERT_OK(data);
  LinearTrainerOptions options = SavingUnder("complete");
  options.epochs = 2;
  absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *data, options);
  ABSL_ASSERT_OK(outcome);
  EXPECT_FALSE(outcome->was_complete);
  outcome = Train(SharedGroup(), *data, options);
  ABSL_ASSERT_OK(outcome);
  EXPECT_TRUE(outcome->was_complete);
  EXPECT_THAT(outcome->losses, IsEmpty());
  EXPECT_THAT(outcome->saved, IsEmpty());
}

TEST(LinearTrainerTest, ASaveThatFailsIsCountedAndTheLastOneDecides) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), GenerateDataset({}));
  ABSL_ASSERT_OK(data);
  LinearTrainerOptions options = SavingUnder("failing_saves");
  options.epochs = 3;
  options.save_every = 1;
  if (SharedGroup().is_main()) std::filesystem::create_directories(options.checkpoint_dir + "/model_epoch_1.pth");
  std::vector<std::string> warnings;
  LinearTrainerObserver observer;
  observer.on_warning = [&](std::string_view warning) { warnings.emplace_back(warning); };
  absl::StatusOr<LinearTrainerOutcome> outcome = TrainLinear(SharedGroup(), *data, options, observer);
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

TEST(LinearTrainerTest, ARankThatFailsInAStepIsHeardByAll) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), GenerateDataset({}));
  ABSL_ASSERT_OK(data);
  const int failing = SharedGroup().world_size() - 1;
  const LinearTrainerOptions options = SavingUnder("failing_step");
  LinearTrainerObserver observer;
  observer.on_epoch = [&](const EpochReport& epoch) {
    // Without gradients LibTorch throws in the next step.
    if (epoch.epoch == 2 && SharedGroup().rank() == failing) at::GradMode::set_enabled(false);
  };
  const absl::StatusOr<LinearTrainerOutcome> last = TrainLinear(SharedGroup(), *data, options, observer);
  at::GradMode::set_enabled(true);
  EXPECT_THAT(last, StatusIs(absl::StatusCode::kInternal, HasSubstr("does not require grad")));
  if (SharedGroup().world_size() > 1) {
    EXPECT_THAT(last.status().message(), HasSubstr(absl::StrCat("rank ", failing, ": ")));
  }
  EXPECT_THAT(SharedGroup().Barrier(), IsOk()) << "the group is no longer usable";
  EXPECT_THAT(NamesIn(options.checkpoint_dir), ElementsAre("model_epoch_0.pth", "step_00000032"));
}

TEST(LinearTrainerTest, ALearningRateThatIsTooHighIsNamedAndNothingIsSaved) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), ReadDiabetes());
  ABSL_ASSERT_OK(data);
  LinearTrainerOptions options = SavingUnder("diverges");
  options.learning_rate = 1e38;
  // In an epoch of one step only the evaluation shows it.
  for (const int64_t batch_size : {32, 442}) {
    options.batch_size = batch_size;
    EXPECT_THAT(
        Train(SharedGroup(), *data, options),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate=1e+38 is too high for this data")));
    EXPECT_THAT(NamesIn(options.checkpoint_dir), IsEmpty());
  }
}

TEST(LinearTrainerTest, AConstantTargetLeavesR2Undefined) {
  absl::StatusOr<Dataset> data = GenerateDataset({});
  ABSL_ASSERT_OK(data);
  for (double& target : data->targets) target = 7;
  data = AgreeOnDataset(SharedGroup(), data);
  ABSL_ASSERT_OK(data);
  const absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *data, SavingUnder("constant"));
  ABSL_ASSERT_OK(outcome);
  EXPECT_TRUE(std::isnan(outcome->r2));
  EXPECT_LT(outcome->losses.back(), 1e-3);
}

TEST(AgreeOnDatasetTest, AllHearOfTheRankThatCouldNotRead) {
  const int failing = SharedGroup().world_size() - 1;
  absl::StatusOr<Dataset> mine = ReadDiabetes();
  if (SharedGroup().rank() == failing) mine = absl::NotFoundError("cannot read x.csv");
  EXPECT_THAT(AgreeOnDataset(SharedGroup(), mine),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("cannot read x.csv")));
  EXPECT_THAT(SharedGroup().Barrier(), IsOk());
}

TEST(AgreeOnDatasetTest, RefusesFewerRowsThanRanks) {
  absl::StatusOr<Dataset> data = GenerateDataset({.num_rows = 3});
  const absl::StatusOr<Dataset> agreed = AgreeOnDataset(SharedGroup(), data);
  if (SharedGroup().world_size() <= 3) {
    EXPECT_THAT(agreed, IsOk());
  } else {
    EXPECT_THAT(agreed,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("generated: 3 rows are too few for 4 ranks")));
  }
}

TEST(AgreeOnDatasetTest, RefusesDataThatDifferBetweenRanks) {
  absl::StatusOr<Dataset> mine = GenerateDataset({});
  ABSL_ASSERT_OK(mine);
  if (SharedGroup().rank() == 1) mine->targets.back() += 1;
  const absl::StatusOr<Dataset> agreed = AgreeOnDataset(SharedGroup(), mine);
  if (SharedGroup().world_size() == 1) {
    EXPECT_THAT(agreed, IsOk());
  } else {
    EXPECT_THAT(agreed, StatusIs(absl::StatusCode::kInvalidArgument,
                                 AllOf(HasSubstr("rank 1: data differs between ranks: here 1000 rows"),
                                       HasSubstr("checksum"))));
  }
}

TEST(LinearTrainerTest, RefusesOptionsThatDifferBetweenRanks) {
  const absl::StatusOr<Dataset> data = AgreeOnDataset(SharedGroup(), GenerateDataset({}));
  ABSL_ASSERT_OK(data);
  LinearTrainerOptions options = SavingUnder("differ");
  if (SharedGroup().rank() == 1) options.epochs = 11;
  const absl::StatusOr<Outcome> outcome = Train(SharedGroup(), *data, options);
  if (SharedGroup().world_size() == 1) {
    EXPECT_THAT(outcome, IsOk());
  } else {
    EXPECT_THAT(outcome, StatusIs(absl::StatusCode::kInvalidArgument,
                                  AllOf(HasSubstr("rank 1: training differs between ranks: here epochs=11 "),
                                        HasSubstr("on rank 0 epochs=10 "))));
  }
}

TEST(CheckLinearTrainerOptionsTest, NamesOptionValueAndWhatIsAllowed) {
  EXPECT_THAT(CheckLinearTrainerOptions({}), IsOk());
  const auto refused = [](std::string_view message) { return StatusIs(absl::StatusCode::kInvalidArgument, message); };
  EXPECT_THAT(CheckLinearTrainerOptions({.epochs = 0}), refused("epochs=0: must be from 1 to 1000000000"));
  EXPECT_THAT(CheckLinearTrainerOptions({.batch_size = 0}), refused("batch_size=0: must be at least 1"));
  EXPECT_THAT(CheckLinearTrainerOptions({.optimizer = "lbfgs"}),
              refused("optimizer=lbfgs: must be sgd, adam, adamw, rmsprop or adagrad"));
  EXPECT_THAT(CheckLinearTrainerOptions({.checkpoint_dir = ""}),
              refused("checkpoint_dir=: must be the path of a directory"));
  EXPECT_THAT(CheckLinearTrainerOptions({.save_every = -1}), refused("save_every=-1: must be at least 1"));
  EXPECT_THAT(CheckLinearTrainerOptions({.save_every_steps = 0}), refused("save_every_steps=0: must be at least 1"));
  EXPECT_THAT(CheckLinearTrainerOptions({.save_every_time = absl::ZeroDuration()}),
              refused("save_every_time=0: must be more than 0, for example 90s or 30m"));
  EXPECT_THAT(CheckLinearTrainerOptions({.keep = 0}), refused("keep=0: must be at least 1"));
  EXPECT_THAT(CheckLinearTrainerOptions({.keep_best = 0}), refused("keep_best=0: must be at least 1"));
  EXPECT_THAT(CheckLinearTrainerOptions({.keep_best = 1, .keep_best_metric = "x\n"}),
              refused("keep_best_metric=x\\n: must be loss or r2"));
  EXPECT_THAT(CheckLinearTrainerOptions({.run_id = std::string(257, 'x')}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 256 printable ASCII characters")));
  for (const double rate : {0.0, -1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(CheckLinearTrainerOptions({.learning_rate = rate}),
                refused(absl::StrCat("learning_rate=", rate, ": must be more than 0, and finite as a float")));
  }
}

}  // namespace
}  // namespace cohort
