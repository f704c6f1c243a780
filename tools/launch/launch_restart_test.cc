// A job whose ranks are started again: after a failure, after a preemption, and not after a request to stop.

#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/test_launcher.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(LaunchRestartTest, AllRanksStartAgainAtTheSamePortAfterAFailure) {
  TestLauncher launcher(
      Shells(2,
             "echo $TORCHELASTIC_RESTART_COUNT of $TORCHELASTIC_MAX_RESTARTS at $MASTER_PORT $TORCHELASTIC_RUN_ID; "
             "[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0; [ $RANK = 1 ] && exit 3; exec sleep 1000",
             {"--max-restarts=2"}));
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, AllOf(ContainsRegex("launch: rank 1 \\(pid [0-9]+\\) failed first: exited with code 3"),
                                HasSubstr("launch: starting all ranks again in 1s: restart 1 of at most 2\n")));
  std::vector<std::string> said;
  for (const std::string& line : Lines(result.out)) {
    // Of the rank that fails: the other one may be stopped before it has said anything.
    if (line.starts_with("[1] ")) said.push_back(line.substr(4));
  }
  ASSERT_EQ(said.size(), 2) << result.out;
  EXPECT_EQ(said[0].substr(0, 7), "0 of 2 ");
  EXPECT_EQ(said[1], "1" + said[0].substr(1));
}

TEST(LaunchRestartTest, TheLastAttemptsExitCodeIsOurs) {
  const TestLauncher::Result result =
      RunLauncher(Shells(1, "exit $((3 + TORCHELASTIC_RESTART_COUNT))", {"--max-restarts=1"}));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, AllOf(HasSubstr("exited with code 3"), HasSubstr("exited with code 4")));
}

TEST(LaunchRestartTest, StandardInputIsTheFirstRanksInEveryAttempt) {
  const std::string file = absl::StrCat(NewDirectory(), "/in");
  WriteFile(file, "one\ntwo\n");
  const TestLauncher::Result result = RunLauncher(
      Shells(1, "read -r line; echo got $line; exit $((1 - TORCHELASTIC_RESTART_COUNT))", {"--max-restarts=1"}),
      {.stdin_path = file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, "got one\ngot two\n");
}

TEST(LaunchRestartTest, PreemptedRanksStartAgainAtOnce) {
  const TestLauncher::Result result =
      RunLauncher(Shells(2, "exit $((TORCHELASTIC_RESTART_COUNT < 2 ? 75 : 0))", {"--max-restarts=2"}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(Lines(result.err), AllOf(Contains("launch: starting all ranks again at once: restart 1 of at most 2"),
                                       Contains("launch: starting all ranks again at once: restart 2 of at most 2")));
}

TEST(LaunchRestartTest, WithoutRestartsPreemptedRanksEndTheJobWith75) {
  EXPECT_EQ(RunLauncher(Shells(2, "exit 75", {"--max-restarts=0"})).exit_code, 75);
}

class StoppedTest : public testing::TestWithParam<int> {};

TEST_P(StoppedTest, RanksThatSaveBecauseTheLauncherWasToldToAreNotStartedAgain) {
  TestLauncher launcher(
      Shells(2, "trap 'exit 75' TERM INT HUP USR1; echo ready; while :; do sleep 0.01; done", {"--max-restarts=5"}));
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  launcher.Signal(GetParam());
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.err, Not(HasSubstr("again")));
}

INSTANTIATE_TEST_SUITE_P(Signals, StoppedTest, testing::Values(SIGTERM, SIGINT, SIGHUP, SIGUSR1),
                         [](const auto& info) { return absl::StrCat("Signal", info.param); });

TEST(LaunchRestartTest, ARequestToStopDuringThePauseEndsTheJob) {
  TestLauncher launcher(Shells(2, "echo $TORCHELASTIC_RESTART_COUNT; exit 3", {"--max-restarts=9"}));
  ASSERT_TRUE(launcher.AwaitErr("restart 2 of at most 9"));
  launcher.Signal(SIGTERM);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(Lines(result.err), Contains("launch: received SIGTERM: no restart"));
  EXPECT_THAT(result.out, Not(HasSubstr("2\n")));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchRestartTest, TheSignalToSaveAndStopEndsTheJobDuringThePauseToo) {
  // Whoever sends it takes the machine away soon.
  TestLauncher launcher(Shells(2, "exit 3", {"--max-restarts=9"}));
  ASSERT_TRUE(launcher.AwaitErr("restart 1 of at most 9"));
  launcher.Signal(SIGUSR2);
  launcher.Signal(SIGUSR1);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(Lines(result.err), Contains("launch: received SIGUSR1: no restart"));
}

TEST(LaunchRestartTest, TheSignalToSaveAndStopEndsTheJobWhateverItsRanksMakeOfIt) {
  // They do not know it, and die of it.
  TestLauncher killed(Shells(2, "echo ready; exec sleep 1000", {"--max-restarts=9"}));
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(killed.AwaitOut(text));
  killed.Signal(SIGUSR1);
  TestLauncher::Result result = killed.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGUSR1);
  EXPECT_THAT(Lines(result.err), Contains("launch: received SIGUSR1 before: no restart"));
  // It comes while they are being stopped because of a failure.
  TestLauncher failed(
      Shells(2,
             "trap '' USR1; [ $RANK = 0 ] && { until [ -e $DIR/ready ]; do sleep 0.01; done; exit 3; }; "
             "trap '' TERM; touch $DIR/ready; while :; do sleep 0.01; done",
             {"--max-restarts=9", "--grace=1"}),
      {.environment = {{"DIR", NewDirectory()}}});
  ASSERT_TRUE(failed.AwaitErr("rank 0 (pid"));
  failed.Signal(SIGUSR1);
  result = failed.Wait();
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(Lines(result.err), Contains("launch: received SIGUSR1 before: no restart"));
  EXPECT_THAT(result.err, Not(HasSubstr("again")));
}

TEST(LaunchRestartTest, NothingSurvivesALauncherThatIsKilledDuringThePause) {
  TestLauncher launcher(Shells(2, "exit 3", {"--max-restarts=9"}));
  ASSERT_TRUE(launcher.AwaitErr("restart 2 of at most 9"));
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Wait().exit_code, 137);
  EXPECT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().empty(); }));
}

TEST(LaunchRestartTest, AProgramThatCannotBeStartedIsNotTriedAgain) {
  EXPECT_EQ(RunLauncher({"--max-restarts=9", "/no/such/program"}).exit_code, 127);
}

}  // namespace
}  // namespace cohort::launch
