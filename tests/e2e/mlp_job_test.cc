// The second trainer as a person runs it: what it learns, what it prints, and that it goes on as it should.

#include <pty.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> Job(int num_ranks, std::vector<std::string> flags = {}) {
  flags.insert(flags.begin(), {PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks), PathIn("MLP")});
  return flags;
}

Process::Result Trained(const std::string& folder, int num_ranks, const std::vector<std::string>& flags) {
  Process::Result result = RunToEnd(Job(num_ranks, flags), {.directory = folder});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result;
}

std::vector<std::string> LinesWith(std::string_view text, std::string_view part) {
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    if (absl::StrContains(line, part) && !absl::StartsWith(line, "launch: ")) lines.emplace_back(line);
  }
  return lines;
}

double NumberAfter(std::string_view line, std::string_view label) {
  const size_t at = line.find(label);
  EXPECT_NE(at, line.npos) << label << " is not in: " << line;
  if (at == line.npos) return 0;
  const std::vector<std::string_view> words =
      absl::StrSplit(line.substr(at + label.size()), absl::ByAnyChar(" ,;}"), absl::SkipEmpty());
  double number = 0;
  EXPECT_TRUE(!words.empty() && absl::SimpleAtod(words[0], &number)) << line;
  return number;
}

TEST(MlpJobTest, WithNoArgumentsClassifiesDigitsThatItHasNotSeen) {
  const std::string folder = NewFolder();
  const Process::Result result = Trained(folder, 2, {"--metrics_report=metrics.jsonl"});
  EXPECT_THAT(result.out, HasSubstr("1797 rows from "));
  EXPECT_THAT(result.out, HasSubstr("Mlp(64, 128, 10): 64 features -> "));
  EXPECT_THAT(result.out, HasSubstr("held out 359 of 1797 rows"));
  const std::vector<std::string> epochs = LinesWith(result.out, "] epoch ");
  ASSERT_THAT(epochs, SizeIs(20));
  EXPECT_GE(NumberAfter(epochs.back(), "accuracy "), 0.95);
  // Plain lines: no terminal is here to be written over.
  EXPECT_THAT(result.out, Not(HasSubstr("\r")));
  EXPECT_THAT(result.out, Not(HasSubstr("\033")));

  const std::vector<std::string> report = LinesWith(ReadFile(folder + "/metrics.jsonl"), "{");
  ASSERT_THAT(report, SizeIs(20));
  for (int epoch = 0; epoch < 20; ++epoch) {
    EXPECT_THAT(report[epoch],
                HasSubstr(absl::StrCat("{\"epoch\":", epoch, ",\"step\":", 45 * (epoch + 1), ",\"loss\":")));
    EXPECT_NEAR(NumberAfter(report[epoch], "\"accuracy\":"), NumberAfter(epochs[epoch], "accuracy "), 1e-5);
  }
}

TEST(MlpJobTest, OnATerminalABarIsWrittenOverAndOver) {
  const std::string folder = NewFolder(), program = PathIn("MLP");
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    if (chdir(folder.c_str()) == 0) execl(program.c_str(), program.c_str(), "--epochs=2", nullptr);
    _exit(127);
  }
  std::string shown;
  char buffer[4096];
  for (ssize_t size; (size = read(terminal, buffer, sizeof(buffer))) > 0;) shown.append(buffer, size);
  close(terminal);
  int status = -1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0) << shown;
  EXPECT_THAT(shown, HasSubstr("\r\033[Kepoch 0 [                              ] 32/1438"));
  // It is gone when a line is.
  EXPECT_THAT(shown, HasSubstr("/1438\r\033[Kepoch 0   loss "));
  EXPECT_THAT(shown, HasSubstr("/1438\r\033[Kepoch 1   loss "));
}

// With dropout, whose random numbers are each rank's own, and everything else there is.
TEST(MlpJobTest, GoingOnFromWithinAnEpochIsTheSameAsNeverStopping) {
  const std::vector<std::string> flags = {"--epochs=3",          "--hidden=32,16",       "--dropout=0.3",
                                          "--accumulate=3",      "--clip_grad_norm=0.5", "--lr_cosine_epochs=4",
                                          "--optimizer=rmsprop", "--momentum=0.5"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return more;
  };
  for (const int num_ranks : {1, 2, 4}) {
    SCOPED_TRACE(num_ranks);
    const std::string folder = NewFolder();
    const std::vector<std::string> epochs = LinesWith(
        Trained(folder, num_ranks, with({"--save_every_steps=50", "--checkpoint_dir=straight"})).out, "epoch ");
    ASSERT_THAT(epochs, Not(IsEmpty()));
    const Process::Result rest =
        Trained(folder, num_ranks, with({"--resume=straight/step_00000050", "--checkpoint_dir=rest", "--prefetch=0"}));
    EXPECT_THAT(LinesWith(rest.out, "resumed "), ElementsAre(HasSubstr("after epoch 0 and 160 rows, step 50; ")));
    EXPECT_THAT(LinesWith(rest.err, "warning: "), IsEmpty());
    for (const std::string_view name : {"/model_epoch_2.pth", "/step_00000135/state.pt"}) {
      const std::string expected = ReadFile(absl::StrCat(folder, "/straight", name));
      EXPECT_THAT(expected, Not(IsEmpty()));
      EXPECT_TRUE(ReadFile(absl::StrCat(folder, "/rest", name)) == expected) << name;
    }
  }
}

TEST(MlpJobTest, AnotherNumberOfRanksGoesOnTheSameWayEachTime) {
  const std::string folder = NewFolder();
  const std::vector<std::string> flags = {"--epochs=2", "--dropout=0.5", "--resume=two/step_00000050"};
  Trained(folder, 2, {"--epochs=2", "--dropout=0.5", "--save_every_steps=50", "--checkpoint_dir=two"});
  std::string last[2];
  for (const int again : {0, 1}) {
    std::vector<std::string> on = flags;
    on.push_back(absl::StrCat("--checkpoint_dir=on_", again));
    const Process::Result result = Trained(folder, 3, on);
    EXPECT_THAT(LinesWith(result.err, "warning: "),
                ElementsAre(AllOf(HasSubstr("saved by 2 ranks"), HasSubstr("3 ranks"))));
    last[again] = ReadFile(absl::StrCat(folder, "/on_", again, "/step_00000090/state.pt"));
    EXPECT_THAT(last[again], Not(IsEmpty()));
  }
  EXPECT_TRUE(last[0] == last[1]);
}

TEST(MlpJobTest, BadInputIsOneMessage) {
  const auto refused = [](std::vector<std::string> flags, std::string_view message) {
    SCOPED_TRACE(absl::StrJoin(flags, " "));
    const std::string folder = NewFolder();
    WriteFile(folder + "/half.csv", "a,b\n1,0\n2,0.5\n3,1\n");
    WriteFile(folder + "/one.csv", "a,b\n1,0\n2,0\n3,0\n");
    flags.insert(flags.begin(), PathIn("MLP"));
    const Process::Result result = RunToEnd(flags, {.directory = folder});
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(LinesWith(result.err, "error: "), ElementsAre(HasSubstr(message)));
    EXPECT_THAT(FilesIn(folder), ElementsAre("half.csv", "one.csv"));
  };
  refused({"--hidden=32,x"}, "--hidden=32,x: must be whole numbers, separated by commas");
  refused({"--hidden=0"}, "--hidden=0: must be sizes from 1 to 1000000");
  refused({"--dropout=1"}, "--dropout=1: must be at least 0 and below 1");
  refused({"--classes=1"}, "--classes=1: must be from 2 to 1000000");
  refused({"--data="}, "--data=: must be digits, or the path of a file");
  refused({"--keep_best=1", "--keep_best_metric=r2"}, "--keep_best_metric=r2: must be loss or accuracy");
  refused({"--data=half.csv"}, "row 1: 0.5 is no class");
  refused({"--data=one.csv"}, "there must be at least 2 classes");
  refused({"--data=missing.safetensors"}, "missing.safetensors");
}

TEST(MlpJobTest, ADropoutThatIsNotAsItWasIsWarnedOf) {
  const std::string folder = NewFolder();
  Trained(folder, 1, {"--epochs=1"});
  const Process::Result result = Trained(folder, 1, {"--epochs=2", "--dropout=0.2"});
  EXPECT_THAT(LinesWith(result.err, "warning: "),
              ElementsAre(HasSubstr("task \"Mlp(64, 128, 10) dropout=0.2\", was \"Mlp(64, 128, 10) dropout=0.1\"")));
}

}  // namespace
}  // namespace cohort::testing
