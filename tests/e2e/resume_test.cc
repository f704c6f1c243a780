// The main job is stopped, or killed, and goes on in new processes as if it had never stopped; what it goes on from,
// and when it saves; and what it makes of a state that is not its own.

#include <signal.h>
#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kUsage = 1;
constexpr int kIo = 74;

std::vector<std::string> With(std::vector<std::string> flags, const std::vector<std::string>& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

// Every epoch is one step, and only the first and the last are saved, unless `flags` say otherwise.
std::vector<std::string> OneStepAnEpoch(const std::vector<std::string>& flags) {
  return With({"--batch_size=442", "--save_every=1000"}, flags);
}

std::vector<std::string> Job(const std::vector<std::string>& flags, int num_ranks = 2) {
  return With({PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks), PathIn("LINEAR")}, flags);
}

Process::Result RunJob(const std::string& folder, const std::vector<std::string>& flags, int num_ranks = 2) {
  return RunToEnd(Job(flags, num_ranks), {.directory = folder});
}

// The same, and the job must end well.
Process::Result Train(const std::string& folder, const std::vector<std::string>& flags) {
  Process::Result result = RunJob(folder, flags);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result;
}

std::vector<std::string> LinesWith(std::string_view text, std::string_view part) {
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, part) && !absl::StartsWith(line, "launch: ")) lines.emplace_back(line);
  }
  return lines;
}

std::vector<std::string> Epochs(const Process::Result& result) { return LinesWith(result.out, "] epoch "); }
std::vector<std::string> Resumed(const Process::Result& result) { return LinesWith(result.out, "] resumed "); }
std::vector<std::string> Warnings(const Process::Result& result) { return LinesWith(result.err, "warning: "); }
std::vector<std::string> Errors(const Process::Result& result) { return LinesWith(result.err, "error: "); }

// The losses of the epochs, in order.
std::vector<double> Losses(std::string_view out) {
  std::vector<double> losses;
  for (const std::string& line : LinesWith(out, " loss ")) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    const auto label = std::find(words.begin(), words.end(), "loss");
    double loss = 0;
    EXPECT_TRUE(label + 1 < words.end() && absl::SimpleAtod(*(label + 1), &loss)) << line;
    losses.push_back(loss);
  }
  return losses;
}

std::string CheckpointOf(int64_t step) { return absl::StrFormat("step_%08d", step); }

// What the checkpoints in a run's directory are called.
std::vector<std::string> CheckpointsIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (absl::StartsWith(entry.path().filename().string(), "step_")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

void ExpectSameFile(const std::string& path, const std::string& expected) {
  const std::string content = ReadFile(expected);
  EXPECT_THAT(content, Not(IsEmpty())) << expected;
  EXPECT_TRUE(ReadFile(path) == content) << path << " is not as " << expected;
}

// ---- As if it had never stopped ----

// Trains 20 epochs with `flags` straight, and 10 and then 10 more in new processes. The last files must be equal byte
// by byte (they hold parameters, optimizer, schedule, random numbers, step and epoch), and so must what is printed of
// the epochs.
void ExpectToGoOn(const std::vector<std::string>& flags, std::string_view model, std::string_view state, int64_t step) {
  SCOPED_TRACE(absl::StrJoin(flags, " "));
  const std::string folder = NewFolder();
  const std::vector<std::string> epochs =
      Epochs(Train(folder, With(flags, {"--epochs=20", "--checkpoint_dir=straight"})));
  ASSERT_THAT(epochs, SizeIs(20));

  const Process::Result half = Train(folder, With(flags, {"--epochs=10", "--checkpoint_dir=parts"}));
  EXPECT_THAT(Epochs(half), ElementsAreArray(epochs.begin(), epochs.begin() + 10));
  EXPECT_THAT(Resumed(half), IsEmpty());

  const Process::Result rest = Train(folder, With(flags, {"--epochs=20", "--checkpoint_dir=parts"}));
  EXPECT_THAT(Resumed(rest), ElementsAre(HasSubstr(absl::StrCat(folder, "/parts/", CheckpointOf(step),
                                                                "  after epoch 9, step ", step, "; learning rate "))));
  EXPECT_THAT(Warnings(rest), IsEmpty());
  EXPECT_THAT(Epochs(rest), ElementsAreArray(epochs.begin() + 10, epochs.end()));

  const std::string last = absl::StrCat("/", CheckpointOf(2 * step), "/state", state);
  for (const std::string& name : {absl::StrCat("/model_epoch_19", model), last}) {
    ExpectSameFile(folder + "/parts" + name, folder + "/straight" + name);
  }
  EXPECT_FALSE(ReadFile(absl::StrCat(folder, "/parts/", CheckpointOf(step), "/state", state)) ==
               ReadFile(folder + "/straight" + last));
}

const std::vector<std::vector<std::string>>& EveryOptimizer() {
  static const auto* const flags =
      new std::vector<std::vector<std::string>>{{"--optimizer=sgd"},     {"--optimizer=sgd", "--momentum=0.9"},
                                                {"--optimizer=adam"},    {"--optimizer=adamw"},
                                                {"--optimizer=rmsprop"}, {"--optimizer=adagrad"}};
  return *flags;
}

TEST(ResumeTest, StoppingAndGoingOnIsTheSameAsNeverStopping) {
  for (const std::vector<std::string>& flags : EveryOptimizer()) {
    ExpectToGoOn(OneStepAnEpoch(flags), ".pth", ".pt", 10);
    ExpectToGoOn(OneStepAnEpoch(With(flags, {"--format=safetensors"})), ".safetensors", ".safetensors", 10);
  }
}

TEST(ResumeTest, TheOrderOfTheRowsAndTheLearningRateGoOn) {
  // 442 rows are 14 steps. The rate changes after epochs 6 and 13.
  ExpectToGoOn({"--optimizer=rmsprop", "--momentum=0.5", "--lr_step_size=7", "--lr_gamma=0.3",
                "--seed=18446744073709551615", "--save_every=1000"},
               ".pth", ".pt", 140);
}

TEST(ResumeTest, GoingOnFromWithinAnEpochIsTheSameAsNeverStopping) {
  for (const std::vector<std::string>& optimizer : EveryOptimizer()) {
    SCOPED_TRACE(absl::StrJoin(optimizer, " "));
    const std::string folder = NewFolder();
    // Of 14 steps an epoch, the last one of 26 rows; the rate changes after every epoch.
    const std::vector<std::string> flags = With(optimizer, {"--epochs=3", "--lr_step_size=1", "--lr_gamma=0.5"});
    const std::vector<std::string> epochs =
        Epochs(Train(folder, With(flags, {"--save_every_steps=9", "--checkpoint_dir=straight"})));
    ASSERT_THAT(epochs, SizeIs(3));
    // After 9 rows' steps of epoch 0, 4 of epoch 1, and 13 of it: only its last step is left.
    for (const auto& [step, position, whole] :
         std::vector<std::tuple<int, std::string_view, int>>{{9, "after 288 rows, step 9; ", 0},
                                                             {18, "after epoch 0 and 128 rows, step 18; ", 1},
                                                             {27, "after epoch 0 and 416 rows, step 27; ", 1}}) {
      const std::string rest = absl::StrCat("rest_", step);
      const Process::Result result = Train(
          folder, With(flags, {absl::StrCat("--resume=straight/", CheckpointOf(step)), "--checkpoint_dir=" + rest}));
      EXPECT_THAT(Resumed(result), ElementsAre(HasSubstr(position)));
      EXPECT_THAT(Warnings(result), IsEmpty());
      EXPECT_THAT(Epochs(result), ElementsAreArray(epochs.begin() + whole, epochs.end()));
      for (const std::string& name :
           {std::string("/model_epoch_2.pth"), absl::StrCat("/", CheckpointOf(42), "/state.pt")}) {
        ExpectSameFile(absl::StrCat(folder, "/", rest, name), folder + "/straight" + name);
      }
    }
  }
}

TEST(ResumeTest, KilledAnywhereItGoesOnByItself) {
  const std::string folder = NewFolder();
  const std::vector<std::string> flags = {"--optimizer=adam", "--save_every=1000000000", "--save_every_steps=5"};
  for (int kills = 0; kills < 3; ++kills) {
    Process job(Job(With(flags, {"--epochs=1000000000", "--checkpoint_dir=killed"})), {.directory = folder});
    // Each gets further than the one before, and is then killed wherever it is.
    ASSERT_TRUE(job.WaitForOutput(absl::StrCat("saved    ", folder, "/killed/step_")));
    const pid_t main_rank = PidOfRank(job.pid(), 0);
    ASSERT_NE(main_rank, 0);
    ASSERT_EQ(kill(main_rank, SIGKILL), 0);
    EXPECT_EQ(job.Wait().exit_code, 128 + SIGKILL);
  }
  int64_t newest = 0;
  for (const std::string& name : CheckpointsIn(folder + "/killed")) {
    int64_t step = 0;
    ASSERT_TRUE(absl::SimpleAtoi(absl::StripPrefix(name, "step_"), &step)) << name;
    newest = std::max(newest, step);
  }
  ASSERT_GE(newest, 14);
  const int64_t num_epochs = newest / 14 + 3;  // of 14 steps
  const std::string epochs_flag = absl::StrCat("--epochs=", num_epochs);

  const Process::Result last = Train(folder, With(flags, {epochs_flag, "--checkpoint_dir=killed"}));
  EXPECT_THAT(Resumed(last), ElementsAre(HasSubstr(absl::StrCat("/killed/", CheckpointOf(newest), "  after epoch "))));
  const std::vector<std::string> rest = Epochs(last);
  EXPECT_THAT(rest, SizeIs(num_epochs - newest / 14));

  const std::vector<std::string> epochs =
      Epochs(Train(folder, With(flags, {epochs_flag, "--checkpoint_dir=straight"})));
  ASSERT_THAT(epochs, SizeIs(num_epochs));
  EXPECT_THAT(rest, ElementsAreArray(epochs.end() - rest.size(), epochs.end()));
  for (const std::string& name : {absl::StrCat("/model_epoch_", num_epochs - 1, ".pth"),
                                  absl::StrCat("/", CheckpointOf(14 * num_epochs), "/state.pt")}) {
    ExpectSameFile(folder + "/killed" + name, folder + "/straight" + name);
  }
}

TEST(ResumeTest, AFinishedRunSaysSoAndTouchesNothing) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({}));
  const std::vector<std::string> files = FilesIn(folder);
  const std::string state = ReadFile(folder + "/checkpoints/step_00000010/state.pt");
  for (const std::string_view flag : {"--resume=auto", "--resume=10", "--seed=5"}) {
    const Process::Result again = Train(folder, OneStepAnEpoch({std::string(flag)}));
    EXPECT_THAT(LinesWith(again.out, "already"),
                ElementsAre(HasSubstr(absl::StrCat("] already complete: epoch 10 of 10 in ", folder,
                                                   "/checkpoints; --resume=none starts over"))));
    EXPECT_THAT(Epochs(again), IsEmpty());
    EXPECT_THAT(again.err, Not(HasSubstr("warning")));
  }
  EXPECT_EQ(FilesIn(folder), files);
  EXPECT_EQ(ReadFile(folder + "/checkpoints/step_00000010/state.pt"), state);

  const Process::Result over = Train(folder, OneStepAnEpoch({"--resume=none"}));
  EXPECT_THAT(Epochs(over), SizeIs(10));
  EXPECT_THAT(Resumed(over), IsEmpty());
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 9}, {"1", "1-2", "10", "10-2"})));
  EXPECT_EQ(fs::read_symlink(folder + "/checkpoints/latest"), "step_00000010-2");
}

// ---- What it goes on from ----

TEST(ResumeTest, AStepAFileACheckpointAndARunAreWaysToName) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=3", "--save_every=1"}));
  for (const std::string_view from :
       {"checkpoints/step_00000002/state.pt", "checkpoints/step_00000002", "checkpoints/step_00000002/"}) {
    const Process::Result result =
        Train(folder, OneStepAnEpoch({"--epochs=4", absl::StrCat("--resume=", from), "--checkpoint_dir=of_two"}));
    EXPECT_THAT(Resumed(result), ElementsAre(HasSubstr("/checkpoints/step_00000002")));
    EXPECT_THAT(Epochs(result), ElementsAre(HasSubstr("epoch 2 "), HasSubstr("epoch 3 ")));
  }
  const Process::Result of_run =
      Train(folder,
            OneStepAnEpoch({"--epochs=4", "--resume=checkpoints", "--checkpoint_dir=of_run", "--format=safetensors"}));
  EXPECT_THAT(Resumed(of_run), ElementsAre(HasSubstr("/checkpoints/step_00000003/state.pt  after epoch 2, step 3; ")));
  EXPECT_THAT(FilesIn(folder + "/of_run"), ElementsAreArray(FilesOfRun("", {3}, {"4"}, "safetensors")));
  // In its own directory the run goes back, and what it then saves is the newest.
  const Process::Result back = Train(folder, OneStepAnEpoch({"--epochs=3", "--resume=1"}));
  EXPECT_THAT(Resumed(back), ElementsAre(HasSubstr("/checkpoints/step_00000001  after epoch 0, step 1; ")));
  EXPECT_THAT(CheckpointsIn(folder + "/checkpoints"),
              ElementsAre("step_00000001", "step_00000002", "step_00000003", "step_00000003-2"));
  EXPECT_EQ(fs::read_symlink(folder + "/checkpoints/latest"), "step_00000003-2");
}

TEST(ResumeTest, ADamagedCheckpointIsSkippedWithAWarningAndRefusedByName) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=2", "--save_every=1"}));
  const std::string path = folder + "/checkpoints/step_00000002/state.pt";
  std::string content = ReadFile(path);
  content[content.size() / 2] ^= 1;
  WriteFile(path, content);

  const Process::Result named = RunJob(folder, OneStepAnEpoch({"--epochs=3", "--resume=2"}));
  EXPECT_EQ(named.exit_code, kIo) << named.err;
  EXPECT_THAT(Errors(named), ElementsAre(AllOf(HasSubstr("step 2"), HasSubstr("state.pt"))));

  const Process::Result skipped = Train(folder, OneStepAnEpoch({"--epochs=3"}));
  EXPECT_THAT(Warnings(skipped), ElementsAre(AllOf(HasSubstr("step 2"), HasSubstr("state.pt"))));
  EXPECT_THAT(Resumed(skipped), ElementsAre(HasSubstr("/step_00000001  after epoch 0, step 1; ")));
  EXPECT_THAT(Epochs(skipped), ElementsAre(HasSubstr("epoch 1 "), HasSubstr("epoch 2 ")));
}

TEST(ResumeTest, IfEveryCheckpointIsDamagedNothingIsBegunUnasked) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=1"}));
  const std::string path = folder + "/checkpoints/step_00000001/state.pt";
  std::string content = ReadFile(path);
  content[content.size() / 2] ^= 1;
  WriteFile(path, content);
  const Process::Result refused = RunJob(folder, OneStepAnEpoch({"--epochs=3"}));
  EXPECT_EQ(refused.exit_code, kIo) << refused.err;
  EXPECT_THAT(Errors(refused),
              ElementsAre(AllOf(HasSubstr("no checkpoint that can be resumed from"), HasSubstr("is damaged"),
                                HasSubstr("--resume=none starts over"))));
  EXPECT_THAT(Epochs(Train(folder, OneStepAnEpoch({"--epochs=3", "--resume=none"}))), SizeIs(3));
}

TEST(ResumeTest, WhatIsNotAsItWasIsWarnedOfAndTheRunGoesOn) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=10", "--momentum=0.5"}));
  const std::vector<std::string> changed = {"--epochs=11",    "--format=safetensors", "--batch_size=100",    "--seed=3",
                                            "--momentum=0.9", "--lr_step_size=11",    "--learning_rate=0.01"};
  const Process::Result result = Train(folder, changed);
  EXPECT_THAT(Resumed(result), ElementsAre(HasSubstr("after epoch 9, step 10; learning rate 0.01")));
  EXPECT_THAT(
      Warnings(result),
      ElementsAre(HasSubstr("not as it was saved: batch_size 100, was 442; seed \"3\", was \"0\"; momentum 0.9, was "
                            "0.5; lr_step_size 11, was 0; lr_gamma 0.1, was 0; learning_rate 0.01, was 0.022727")));
  EXPECT_THAT(Epochs(result), ElementsAre(HasSubstr("epoch 10 ")));
  EXPECT_THAT(FilesIn(folder + "/checkpoints"), Contains("step_00000015/state.safetensors"));
  // What it goes on with is what is saved from now on, and so is the schedule, which counts epochs from the first one.
  std::vector<std::string> again = changed;
  again[0] = "--epochs=12";
  again.pop_back();
  const Process::Result next = Train(folder, again);
  EXPECT_THAT(Resumed(next), ElementsAre(HasSubstr("after epoch 10, step 15; learning rate 0.001")));
  EXPECT_THAT(Warnings(next), IsEmpty());
}

TEST(ResumeTest, AScheduleMayChangeOrGo) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=3", "--learning_rate=0.01", "--lr_step_size=2", "--lr_gamma=0.5"}));
  const Process::Result other = Train(folder, OneStepAnEpoch({"--epochs=5", "--lr_step_size=4"}));
  EXPECT_THAT(Resumed(other), ElementsAre(HasSubstr("learning rate 0.005")));
  EXPECT_THAT(Warnings(other), ElementsAre(HasSubstr("lr_step_size 4, was 2; lr_gamma 0.1, was 0.5")));
  const Process::Result none = Train(folder, OneStepAnEpoch({"--epochs=7"}));
  EXPECT_THAT(Resumed(none), ElementsAre(HasSubstr("learning rate 0.0005")));
  EXPECT_THAT(Warnings(none), ElementsAre(HasSubstr("lr_step_size 0, was 4; lr_gamma 0, was 0.1")));
  const Process::Result last = Train(folder, OneStepAnEpoch({"--epochs=8"}));
  EXPECT_THAT(Resumed(last), ElementsAre(HasSubstr("learning rate 0.0005")));
  EXPECT_THAT(Warnings(last), IsEmpty());
}

TEST(ResumeTest, AnotherNumberOfRanksGoesOnWithOneWarning) {
  const std::string folder = NewFolder();
  const std::vector<std::string> flags = {"--optimizer=adam", "--epochs=4"};
  // 9 steps of 14 into epoch 1.
  Train(folder, With(flags, {"--save_every_steps=23", "--checkpoint_dir=two"}));
  const std::vector<std::string> losses = Epochs(Train(folder, With(flags, {"--checkpoint_dir=straight"})));
  for (const int num_ranks : {1, 3, 4}) {
    SCOPED_TRACE(num_ranks);
    const std::vector<std::string> on = With(flags, {"--resume=two/step_00000023"});
    std::string last[2];
    for (const int again : {0, 1}) {
      const std::string to = absl::StrCat("on_", num_ranks, "_", again);
      const Process::Result result = RunJob(folder, With(on, {"--checkpoint_dir=" + to}), num_ranks);
      EXPECT_EQ(result.exit_code, 0) << result.err;
      EXPECT_THAT(LinesWith(result.out, "resumed "), ElementsAre(HasSubstr("after epoch 0 and 288 rows, step 23; ")));
      EXPECT_THAT(Warnings(result),
                  ElementsAre(AllOf(HasSubstr("saved by 2 ranks"), HasSubstr(absl::StrCat(num_ranks, " rank")))));
      // The rows that are left are those that were left: the losses are those of two ranks, but for rounding.
      const std::vector<double> ours = Losses(result.out), expected = Losses(absl::StrJoin(losses, "\n"));
      ASSERT_THAT(ours, SizeIs(3));
      for (size_t epoch = 0; epoch < 3; ++epoch) EXPECT_NEAR(ours[epoch] / expected[epoch + 1], 1, 1e-5);
      last[again] = ReadFile(absl::StrCat(folder, "/", to, "/", CheckpointOf(56), "/state.pt"));
      EXPECT_THAT(last[again], Not(IsEmpty()));
    }
    EXPECT_TRUE(last[0] == last[1]) << "going on twice is not the same";
  }
}

// ---- When it saves, and what it keeps ----

TEST(SavingTest, EveryEpochsAndEverySteps) {
  const std::string folder = NewFolder();
  Train(folder, {"--epochs=3", "--save_every=2", "--save_every_steps=10"});
  EXPECT_THAT(FilesIn(folder),
              ElementsAreArray(FilesOfRun("checkpoints", {0, 2}, {"10", "14", "20", "30", "40", "42"})));
}

TEST(SavingTest, EveryStepsThatEndAnEpochSaveItOnce) {
  const std::string folder = NewFolder();
  Train(folder, {"--epochs=3", "--save_every=2", "--save_every_steps=14"});
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 2}, {"14", "28", "42"})));
}

TEST(SavingTest, EverySoLongATime) {
  const std::string folder = NewFolder();
  // However fast a step is, it takes that long. The time begins to run anew at the step after a save.
  Train(folder, OneStepAnEpoch({"--epochs=6", "--save_every_time=1ns", "--stop_check_every=1"}));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 5}, {"1", "3", "5", "6"})));
}

TEST(SavingTest, OnceAsked) {
  // Without the signal the next save of the run would be its last.
  const std::string folder = NewFolder();
  const std::vector<std::string> flags = {"--data=generated", "--save_every=1000000000"};
  Train(folder, With(flags, {"--epochs=1"}));
  ASSERT_THAT(CheckpointsIn(folder + "/checkpoints"), ElementsAre("step_00000032"));
  Process job(Job(With(flags, {"--epochs=1000000000"})), {.directory = folder});
  ASSERT_TRUE(job.WaitForOutput("epoch 3 "));
  const pid_t rank_1 = PidOfRank(job.pid(), 1);
  ASSERT_NE(rank_1, 0);
  ASSERT_EQ(kill(rank_1, SIGUSR2), 0);
  ASSERT_TRUE(job.WaitForOutput("saved    "));
  // The run has gone on.
  EXPECT_THAT(CheckpointsIn(folder + "/checkpoints"), SizeIs(2));
  ASSERT_EQ(kill(job.pid(), SIGKILL), 0);
  EXPECT_THAT(LinesWith(job.Wait().out, "] stopped "), IsEmpty());
}

TEST(SavingTest, TheLauncherHandsTheSignalOn) {
  const std::string folder = NewFolder();
  const std::vector<std::string> flags = {"--data=generated", "--save_every=1000000000"};
  Train(folder, With(flags, {"--epochs=1"}));
  Process job(Job(With(flags, {"--epochs=1000000000"})), {.directory = folder});
  ASSERT_TRUE(job.WaitForOutput("epoch 3 "));
  ASSERT_EQ(kill(job.pid(), SIGUSR2), 0);
  EXPECT_TRUE(job.WaitForOutput("saved    "));
}

TEST(SavingTest, TheNewestAreKept) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=6", "--save_every=1", "--keep=2"}));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 1, 2, 3, 4, 5}, {"5", "6"})));
}

TEST(SavingTest, TheBestAreKeptBesides) {
  const std::string folder = NewFolder();
  // The loss falls until the rate is too high. That of an epoch of one step is from before the step.
  Train(folder, OneStepAnEpoch({"--epochs=4", "--save_every=1"}));
  EXPECT_THAT(CheckpointsIn(folder + "/checkpoints"), SizeIs(4));
  Train(folder, OneStepAnEpoch({"--epochs=7", "--save_every=1", "--keep_best=2", "--learning_rate=5"}));
  EXPECT_THAT(CheckpointsIn(folder + "/checkpoints"), ElementsAre("step_00000004", "step_00000005", "step_00000007"));
  const std::string by_r2 = NewFolder();
  Train(by_r2, OneStepAnEpoch({"--epochs=5", "--save_every=1", "--keep=1", "--keep_best=2", "--keep_best_metric=r2"}));
  EXPECT_THAT(CheckpointsIn(by_r2 + "/checkpoints"), ElementsAre("step_00000004", "step_00000005"));
}

TEST(SavingTest, EverySaveIsReportedIfAskedFor) {
  const std::string folder = NewFolder();
  Train(folder, OneStepAnEpoch({"--epochs=3", "--save_every=1", "--save_report=saves.jsonl"}));
  const std::string report = ReadFile(folder + "/saves.jsonl");
  EXPECT_THAT(LinesWith(report, "\"step\""),
              ElementsAre(HasSubstr("\"step\":1,"), HasSubstr("\"step\":2,"), HasSubstr("\"step\":3,")));
}

// ---- What it does not go on from ----

// One run of 10 epochs with Adam on 2 ranks, and what resuming from it is refused for.
class WrongResumeTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(NewFolder());
    Train(*folder_, OneStepAnEpoch({"--optimizer=adam"}));
  }

  // All ranks end with one error that holds `message`, and no file is made or changed. Of a file that was asked for by
  // its path the error has the path; of a checkpoint that was found it says how to do without it.
  static void ExpectRefused(const std::string& from, const std::vector<std::string>& flags, std::string_view message,
                            int exit_code = kUsage, int num_ranks = 2) {
    SCOPED_TRACE(absl::StrCat(from, " ", absl::StrJoin(flags, " ")));
    const std::string folder = NewFolder();
    fs::copy(*folder_, folder, fs::copy_options::recursive | fs::copy_options::copy_symlinks);
    const std::vector<std::string> files = FilesIn(folder);
    const std::string before = ReadFile(absl::StrCat(folder, "/", kState));
    const Process::Result result = RunJob(
        folder, With({"--optimizer=adam", "--batch_size=442", "--epochs=20", "--resume=" + from}, flags), num_ranks);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(Errors(result),
                ElementsAre(AllOf(HasSubstr(message), HasSubstr(from == "auto" ? "--resume=none" : from))));
    EXPECT_THAT(Epochs(result), IsEmpty());
    EXPECT_THAT(Resumed(result), IsEmpty());
    EXPECT_EQ(FilesIn(folder), files);
    EXPECT_EQ(ReadFile(absl::StrCat(folder, "/", kState)), before);
  }

  // A file of this name, which is the saved state with one byte changed or the end cut off.
  static std::string Damaged(const std::string& name, size_t at, bool cut) {
    std::string content = ReadFile(*folder_ + "/" + kState);
    EXPECT_LT(at, content.size());
    if (cut) {
      content.resize(at);
    } else {
      content[at] ^= 1;
    }
    WriteFile(*folder_ + "/" + name, content);
    return name;
  }

  static constexpr char kState[] = "checkpoints/step_00000010/state.pt";
  static std::string* folder_;
};

std::string* WrongResumeTest::folder_ = nullptr;

TEST_F(WrongResumeTest, WithEpochsThatAreAllDone) {
  ExpectRefused(kState, {"--epochs=10"}, "has 10 epochs done already, and epochs=10 are to be made in all");
  ExpectRefused(kState, {"--epochs=3"}, "has 10 epochs done already, and epochs=3 are to be made in all");
}

TEST_F(WrongResumeTest, WithAnotherOptimizer) {
  for (const std::string& from : {std::string(kState), std::string("auto")}) {
    ExpectRefused(from, {"--optimizer=sgd"}, "saved with optimizer=\"adam\"; now optimizer=\"sgd\"");
    ExpectRefused(from, {"--optimizer=adamw"}, "saved with optimizer=\"adam\"; now optimizer=\"adamw\"");
  }
}

TEST_F(WrongResumeTest, WithOtherData) {
  ExpectRefused(kState, {"--data=generated", "--features=3", "--outputs=1", "--batch_size=1000"}, " features=3 ");
  // One digit of one number.
  std::string csv = ReadFile(PathIn("DIABETES"));
  const size_t digit = csv.find_last_of("0123456789");
  csv[digit] = csv[digit] == '1' ? '2' : '1';
  WriteFile(*folder_ + "/other.csv", csv);
  for (const std::string& from : {std::string(kState), std::string("auto")}) {
    ExpectRefused(from, {"--data=other.csv"}, "saved with data_checksum=");
  }
}

TEST_F(WrongResumeTest, FromAFileThatIsNoState) {
  ExpectRefused("checkpoints/model_epoch_9.pth", {}, "no key \"step\"; it has \"weight\", \"bias\"");
  ExpectRefused("checkpoints/missing.pt", {}, "No such file or directory");
  fs::create_directories(*folder_ + "/empty");
  ExpectRefused("empty", {}, "is neither the directory of a checkpoint (it has no manifest.json) nor that of a run");
  WriteFile(*folder_ + "/text.pt", "What is a state?\n");
  ExpectRefused("text.pt", {}, "text.pt");
}

TEST_F(WrongResumeTest, FromAStepThatIsNotThere) {
  ExpectRefused("7", {}, "has no checkpoint of step 7; there are 1, 10");
}

TEST_F(WrongResumeTest, FromADamagedFile) {
  const std::string content = ReadFile(*folder_ + "/" + kState);
  // A cut file has lost its directory; a byte in the middle of a tensor is found by its checksum.
  ExpectRefused(Damaged("cut.pt", content.size() / 2, /*cut=*/true), {}, "cut", kIo);
  const size_t name = content.find("data/0");
  ASSERT_NE(name, content.npos);
  // Behind the name and its padding.
  const size_t tensor = (name + 2 * 64) / 64 * 64;
  ExpectRefused(Damaged("flipped.pt", tensor, /*cut=*/false), {}, "checksum", kIo);
}

}  // namespace
}  // namespace cohort::testing
