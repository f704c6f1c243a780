// The main job as a person runs it: the trainer under the launcher.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The command for `num_ranks` ranks under the launcher.
std::vector<std::string> Job(int num_ranks, std::vector<std::string> flags = {}) {
  std::vector<std::string> command = {PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks), PathIn("LINEAR")};
  command.insert(command.end(), flags.begin(), flags.end());
  return command;
}

// The number behind `label` in `line`.
double NumberAfter(std::string_view line, std::string_view label) {
  const size_t at = line.find(label);
  EXPECT_NE(at, line.npos) << label << " is not in: " << line;
  if (at == line.npos) return 0;
  const std::vector<std::string_view> words =
      absl::StrSplit(line.substr(at + label.size()), absl::ByAnyChar(" ;"), absl::SkipEmpty());
  double number = 0;
  EXPECT_TRUE(!words.empty() && absl::SimpleAtod(words[0], &number)) << line;
  return number;
}

std::vector<double> Losses(std::string_view out) {
  std::vector<double> losses;
  for (const std::string_view line : absl::StrSplit(out, '\n')) {
    if (absl::StrContains(line, "epoch ")) losses.push_back(NumberAfter(line, "loss "));
  }
  return losses;
}

TEST(MainJobTest, WithNoArgumentsTrainsOnRealDataAndSavesWhereThePersonStands) {
  // As under `bazel run`: the working directory is another one.
  const std::string stands = NewFolder(), elsewhere = NewFolder();
  const Process::Result result =
      RunToEnd(Job(2), {.environment = {{"BUILD_WORKING_DIRECTORY", stands}}, .directory = elsewhere});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(FilesIn(stands), ElementsAreArray(FilesOfRun("checkpoints", {0, 5, 9}, {"14", "84", "140"})));
  EXPECT_EQ(std::filesystem::read_symlink(stands + "/checkpoints/latest"), "step_00000140");
  EXPECT_THAT(FilesIn(elsewhere), IsEmpty());

  EXPECT_THAT(result.out, HasSubstr("442 rows"));
  EXPECT_THAT(result.out, HasSubstr("age sex bmi bp s1 s2 s3 s4 s5 s6 -> progression"));
  EXPECT_THAT(result.out, HasSubstr("2 ranks, backend gloo"));
  EXPECT_THAT(Losses(result.out), SizeIs(10));
  for (const std::string_view saved : {"model_epoch_0.pth", "step_00000014", "model_epoch_5.pth", "step_00000084",
                                       "model_epoch_9.pth", "step_00000140"}) {
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("saved    ", stands, "/checkpoints/", saved, "  ")));
  }
  EXPECT_GT(NumberAfter(result.out, "fit      R2 "), 0.5);
  EXPECT_NEAR(NumberAfter(result.out, "the best there is: "), 0.51775, 1e-5);
  // Only the main rank writes.
  for (const std::string_view line : absl::StrSplit(result.out + result.err, '\n', absl::SkipEmpty())) {
    if (absl::StrContains(line, "[./gloo/")) continue;  // Debian's Gloo tells that it is connected
    EXPECT_TRUE(absl::StartsWith(line, "[0] ")) << line;
  }
}

TEST(MainJobTest, TheLossIsTheSameOnOneTwoAndFourRanks) {
  std::map<int, std::vector<double>> losses;
  for (const int num_ranks : {1, 2, 4}) {
    const std::string folder = NewFolder();
    const Process::Result result = RunToEnd(Job(num_ranks), {.directory = folder});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 5, 9}, {"14", "84", "140"})));
    losses[num_ranks] = Losses(result.out);
    ASSERT_THAT(losses[num_ranks], SizeIs(10)) << result.out;
    for (int epoch = 0; epoch < 10; ++epoch) {
      EXPECT_NEAR(losses[num_ranks][epoch] / losses[1][epoch], 1, 1e-5) << num_ranks << " ranks, epoch " << epoch;
    }
  }
}

TEST(MainJobTest, FullBatchTrainingReachesTheLeastSquaresFit) {
  const Process::Result result =
      RunToEnd(Job(2, {"--batch_size=442", "--epochs=600", "--save_every=600", "--learning_rate=0.24"}),
               {.directory = NewFolder()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NEAR(NumberAfter(result.out, "fit      R2 "), 0.51775, 1e-4);
}

TEST(MainJobTest, TakesAFileOfThePersonsOwnWithSeveralTargets) {
  const std::string stands = NewFolder();
  std::string csv = "twice,x,minus,z\n";
  for (int x = 0; x < 50; ++x) absl::StrAppend(&csv, 2 * x, ",", x, ",", -x, ",", x % 7, "\n");
  WriteFile(stands + "/my.csv", csv);
  const Process::Result result =
      RunToEnd(Job(2, {"--data=my.csv", "--target=minus,twice", "--checkpoint_dir=out/here", "--epochs=50",
                       "--save_every=49", "--batch_size=10", "--optimizer=adam", "--seed=7"}),
               {.environment = {{"BUILD_WORKING_DIRECTORY", stands}}, .directory = NewFolder()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Linear(2, 2): x z -> minus twice"));
  EXPECT_GT(NumberAfter(result.out, "fit      R2 "), 0.9);
  std::vector<std::string> files = FilesOfRun("out/here", {0, 49}, {"5", "250"});
  files.insert(files.begin(), "my.csv");
  EXPECT_THAT(FilesIn(stands), ElementsAreArray(files));
}

TEST(MainJobTest, GeneratesDataOfTheSizeAskedFor) {
  Process::Result result = RunToEnd(Job(2, {"--data=generated"}), {.directory = NewFolder()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Linear(10, 2)"));
  result = RunToEnd(Job(1, {"--data=generated", "--features=3", "--outputs=1"}), {.directory = NewFolder()});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("Linear(3, 1)"));
}

TEST(MainJobTest, WithoutALauncherIsAWorldOfOne) {
  const std::string folder = NewFolder();
  const Process::Result result = RunToEnd({PathIn("LINEAR"), "--epochs=1"}, {.directory = folder});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("1 rank, backend none"));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0}, {"14"})));
}

TEST(MainJobTest, TheHelpNamesEveryFlagAndExitCode) {
  const Process::Result result = RunToEnd({PathIn("LINEAR"), "--help"});
  for (const std::string_view flag : {"data",           "target",     "epochs",           "save_every",
                                      "checkpoint_dir", "batch_size", "optimizer",        "learning_rate",
                                      "seed",           "backend",    "init_timeout",     "features",
                                      "outputs",        "format",     "resume",           "momentum",
                                      "lr_step_size",   "lr_gamma",   "save_every_steps", "save_every_time",
                                      "keep",           "keep_best",  "keep_best_metric", "save_failure",
                                      "save_report",    "run_id",     "accumulate",       "clip_grad_norm",
                                      "validation",     "prefetch",   "lr_cosine_epochs", "lr_warmup_epochs",
                                      "metrics_report", "stop_check_every"}) {
    EXPECT_THAT(result.out, HasSubstr(absl::StrCat("\n  --", flag, "=")));
  }
  EXPECT_THAT(result.out, HasSubstr("Exit codes: 0 trained"));
  EXPECT_THAT(result.out, Not(HasSubstr("stderrthreshold")));  // Abseil's
  EXPECT_EQ(result.exit_code, 0);
}

}  // namespace
}  // namespace cohort::testing
