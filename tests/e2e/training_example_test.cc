// The program of docs/training.md does what the page says.

#include <signal.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kPreempted = 75;
// 20 epochs of 1000 rows, 64 a step.
constexpr char kTrained[] = "trained 320 steps\n";

std::vector<std::string> Job(int num_ranks) {
  return {PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks), PathIn("TRAIN")};
}

std::string LastState(const std::string& folder) { return ReadFile(folder + "/run/step_00000320/state.pt"); }

TEST(TrainingExampleTest, TrainsAloneAndUnderTheLauncher) {
  const std::string folder = NewFolder();
  const Process::Result result = RunToEnd({PathIn("TRAIN")}, {.directory = folder});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, kTrained);
  EXPECT_NE(LastState(folder), "");
}

class NumRanksTest : public ::testing::TestWithParam<int> {};

TEST_P(NumRanksTest, StoppedAtAnyMomentItGoesOnAsIfItNeverHadBeen) {
  const std::string unbroken = NewFolder(), folder = NewFolder();
  const Process::Result whole = RunToEnd(Job(GetParam()), {.directory = unbroken});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;

  int num_stops = 0;
  for (int i = 0; i < 20; ++i) {
    Process job(Job(GetParam()), {.directory = folder});
    // A time of its own for each, the first within the start: before there is a trigger TERM ends the ranks.
    usleep(200000 + 70000 * i);
    kill(job.pid(), SIGTERM);
    const Process::Result result = job.Wait();
    if (absl::StrContains(result.out, "trained ")) break;
    ASSERT_TRUE(result.exit_code == kPreempted || result.exit_code == 128 + SIGTERM) << result.exit_code << result.err;
    num_stops += result.exit_code == kPreempted;
  }
  const Process::Result last = RunToEnd(Job(GetParam()), {.directory = folder});
  EXPECT_EQ(last.exit_code, 0) << last.err;
  EXPECT_THAT(last.out, HasSubstr(kTrained));
  EXPECT_GT(num_stops, 0) << "it was never stopped within its training";
  EXPECT_TRUE(LastState(folder) == LastState(unbroken)) << "the states differ";
}

INSTANTIATE_TEST_SUITE_P(Ranks, NumRanksTest, ::testing::Values(2, 3));

}  // namespace
}  // namespace cohort::testing
