// The launcher on a machine whose wall clock is set while it runs, as it is on one that has none of its own, once the network
// has told it the time. See wild_clock.cc.

#include <signal.h>

#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/environment.h"
#include "cohort/tools/launch/test_launcher.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A parameter says which way the clock is set.
class LaunchClockTest : public ::testing::TestWithParam<const char*> {
 protected:
  TestLauncher::Setup Setup() const {
    return {.environment = {{"WILD_CLOCK", GetParam()}, {"TZ", "UTC"}, {"DIR", directory_}}};
  }

 private:
  const std::string directory_ = NewDirectory();
};
INSTANTIATE_TEST_SUITE_P(Set, LaunchClockTest, ::testing::Values("ahead", "back"));

TEST_P(LaunchClockTest, TheSummaryHasTheWallClocksTimeAndTheRanksTrueAge) {
  const TestLauncher::Result result = RunLauncher(Shells(1, "exit 3"), Setup());
  const size_t at = result.err.find(" at 2");
  ASSERT_NE(at, std::string::npos) << result.err;
  absl::Time when;
  std::string error;
  ASSERT_TRUE(absl::ParseTime("%Y-%m-%d %H:%M:%E3S", result.err.substr(at + 4, 23), &when, &error)) << error;
  EXPECT_GT(absl::AbsDuration(absl::Now() - when), absl::Minutes(30)) << "the clock is not wild";
  EXPECT_THAT(result.err, ContainsRegex(", [0-9.]+m?s after its start\n"));
}

TEST_P(LaunchClockTest, RanksHaveTheGraceTimeToSave) {
  TestLauncher launcher(
      Shells(2, "trap 'sleep 0.3; echo saved; exit 75' TERM; echo ready; while :; do sleep 0.01; done", {"--grace=60"}),
      Setup());
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  launcher.Signal(SIGTERM);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 75) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] saved\n"), HasSubstr("[1] saved\n")));
}

TEST_P(LaunchClockTest, TheGraceTimeEnds) {
  TestLauncher launcher(Shells(2, "trap '' TERM; echo ready; while :; do sleep 0.01; done", {"--grace=0.2"}), Setup());
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 143);
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST_P(LaunchClockTest, ThePauseBeforeARestartEnds) {
  const TestLauncher::Result result =
      RunLauncher(Shells(1, "exit $((3 * (1 - TORCHELASTIC_RESTART_COUNT)))", {"--max-restarts=1"}), Setup());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("starting all ranks again in 1s"));
}

TEST_P(LaunchClockTest, ASignalThatIsMeantAgainIsPassedOnAgain) {
  TestLauncher launcher(Shells(1, "trap 'echo got it' USR2; echo ready; while :; do sleep 0.01; done"), Setup());
  ASSERT_TRUE(launcher.AwaitOut("ready\n"));
  launcher.Signal(SIGUSR2);
  ASSERT_TRUE(launcher.AwaitOut("got it\n"));
  // It counts again once a tenth of a second is over.
  EXPECT_TRUE(AwaitCondition([&] {
    launcher.Signal(SIGUSR2);
    return Lines(launcher.out()).size() >= 4;  // with what follows the last line end
  }));
}

TEST_P(LaunchClockTest, WhatRanksLeaveBehindIsKilled) {
  TestLauncher launcher(
      Shells(1, "setsid sh -c 'touch $DIR/left; exec sleep 1000' & until [ -e $DIR/left ]; do sleep 0.01; done"),
      Setup());
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("killed what ranks had left running"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

}  // namespace
}  // namespace cohort::launch
