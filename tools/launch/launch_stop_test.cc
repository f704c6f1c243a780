// How a job ends when it does not end well: whose failure is named, who is stopped and how, and that nobody is left.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
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
using ::testing::SizeIs;

std::string Subject() { return getenv("SUBJECT"); }

// Four ranks joined as by sockets: the others see rank 2 go and fail of that, as fast as they can. Rank 2 waits until
// all are joined (opening a FIFO waits for its reader), and then does `how`.
std::vector<std::string> JoinedRanks(std::string_view how) {
  const std::string directory = NewDirectory();
  for (const char* name : {"/0", "/1", "/3"}) mkfifo(absl::StrCat(directory, name).c_str(), 0600);
  return Shells(4, absl::StrCat("cd ", directory, "; if [ $RANK = 2 ]; then exec 7>0 8>1 9>3; ", how,
                                "; fi; cat $RANK; echo connection closed by peer >&2; exit 1"));
}

TEST(LaunchStopTest, TheFirstFailureIsTheCauseAndItsCodeIsOurs) {
  // Many times: one wrong order in a hundred would be found in the field, not here.
  for (int i = 0; i < 20; ++i) {
    TestLauncher launcher(JoinedRanks("echo boom >&2; exec sh -c 'exit 3'"));
    const TestLauncher::Result result = launcher.Wait();
    ASSERT_EQ(result.exit_code, 3) << result.err;
    ASSERT_THAT(result.err, HasSubstr("[2] boom\n"));
    ASSERT_THAT(result.err, ContainsRegex("launch: rank 2 \\(pid [0-9]+\\) failed first: exited with code 3 at 20.*\n"
                                          "launch: its last lines on standard error:\n"
                                          "launch:   boom\n"));
    ASSERT_THAT(result.err, Not(ContainsRegex("rank [013] \\(pid [0-9]+\\) failed first")));
    ASSERT_THAT(launcher.LiveProcesses(), IsEmpty());
  }
}

TEST(LaunchStopTest, ASignalIsNamedAndCounts128AndItsNumber) {
  const TestLauncher::Result result = RunLauncher(JoinedRanks("echo boom; kill -SEGV $$"));
  EXPECT_EQ(result.exit_code, 139);
  EXPECT_THAT(result.err, ContainsRegex("rank 2 \\(pid [0-9]+\\) failed first: killed by SIGSEGV"));
  // It was silent on standard error.
  EXPECT_THAT(result.err, HasSubstr("launch: its last lines on standard output:\nlaunch:   boom\n"));
}

// A shell command that leaves `message` in the rank's error file.
std::string LeaveError(std::string_view message) {
  return absl::StrCat("printf %s '{\"message\": {\"message\": \"", message, "\"}}' >$TORCHELASTIC_ERROR_FILE; ");
}

TEST(LaunchStopTest, TheErrorThatARankLeavesInItsErrorFileIsInTheSummary) {
  TestLauncher launcher(Shells(2, absl::StrCat("[ $RANK = 1 ] && { ", LeaveError("the disk\\nis \\u001bfull"),
                                               "echo bye >&2; exit 3; }; exec sleep 1000")));
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, ContainsRegex("rank 1 \\(pid [0-9]+\\) failed first: exited with code 3 at 20.* on .*\n"
                                        "launch: its error:\nlaunch:   the disk\nlaunch:   is \\?full\n"
                                        "launch: its last lines on standard error:\nlaunch:   bye\n"));
}

TEST(LaunchStopTest, AnErrorThatIsSaidOnStandardErrorAsWellIsNotInTheSummaryTwice) {
  const TestLauncher::Result result = RunLauncher(
      Shells(1, absl::StrCat(LeaveError("ABORTED: rank 1 is gone"), "echo error: rank 1 is gone >&2; exit 3")));
  EXPECT_THAT(result.err, HasSubstr("launch: its error:\nlaunch:   ABORTED: rank 1 is gone\n"));
  EXPECT_THAT(result.err, Not(HasSubstr("its last lines")));
}

TEST(LaunchStopTest, IfTheFirstRankHadNoTimeForAWordAnothersErrorIsShown) {
  const std::string directory = NewDirectory();
  TestLauncher launcher(Shells(2, absl::StrCat("[ $RANK = 0 ] && { until [ -e ", directory,
                                               "/1 ]; do sleep 0.01; done; kill -KILL $$; }; "
                                               "trap '",
                                               "exit 9' TERM; ", LeaveError("rank 0 is gone"), "touch ", directory,
                                               "/1; while :; do sleep 0.01; done")));
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.err, HasSubstr("launch: the error of rank 1:\nlaunch:   rank 0 is gone\n"));
}

TEST(LaunchStopTest, TheErrorFilesGoWithTheLauncher) {
  const std::string directory = NewDirectory();
  const TestLauncher::Result result =
      RunLauncher(Shells(2, absl::StrCat(LeaveError("x"), "echo $TORCHELASTIC_ERROR_FILE; exit 3")),
                  {.environment = {{"TMPDIR", directory}}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.out, HasSubstr(directory));
  EXPECT_EQ(rmdir(directory.c_str()), 0);  // it is empty
}

TEST(LaunchStopTest, TheFirstFailureIsFoundOnAKernelWithoutPidfds) {
  TestLauncher::Setup setup;
  setup.wrapper = {Subject(), "without-pidfd"};
  const TestLauncher::Result result = RunLauncher(Shells(3, "[ $RANK = 1 ] && exit 3; sleep 1000"), setup);
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, ContainsRegex("rank 1 \\(pid [0-9]+\\) failed first"));
  EXPECT_EQ(RunLauncher(Shells(3, "exit 0"), setup).exit_code, 0);
}

TEST(LaunchStopTest, WhatBecameOfTheOthersIsMarkedAsConsequence) {
  const TestLauncher::Result result = RunLauncher(
      Shells(
          4,
          "case $RANK in 0) exit 0;; 1) trap 'exit 9' TERM; touch $DIR/1; while :; do sleep 0.01; done;; "
          "2) until [ -e $DIR/1 -a -e $DIR/3 ]; do sleep 0.01; done; exit 5;; 3) touch $DIR/3; exec sleep 1000;; esac"),
      {.environment = {{"DIR", NewDirectory()}}});
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 0: had finished (exited with code 0)"));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 1: failed after it (exited with code 9)"));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 3: stopped by the launcher (killed by SIGTERM)"));
}

TEST(LaunchStopTest, ARankThatEndsEarlyWithSuccessLeavesTheOthersRunning) {
  const std::string directory = NewDirectory();
  TestLauncher launcher(Shells(3, absl::StrCat("[ $RANK = 2 ] && { echo $$; exit 0; }; until [ -e ", directory,
                                               "/go ]; do sleep 0.01; done; echo done")));
  ASSERT_TRUE(launcher.AwaitOut("\n"));
  ASSERT_EQ(launcher.out().substr(0, 4), "[2] ");
  const pid_t early = atoi(launcher.out().c_str() + 4);
  ASSERT_TRUE(AwaitCondition([&] { return kill(early, 0) != 0; }));
  WriteFile(absl::StrCat(directory, "/go"), "");
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] done\n"), HasSubstr("[1] done\n")));
  EXPECT_EQ(result.err, "");
}

TEST(LaunchStopTest, SuccessNeedsEveryRank) {
  const TestLauncher::Result result = RunLauncher(Shells(3, "[ $RANK = 1 ] && { sleep 0.1; exit 7; }; exit 0"));
  EXPECT_EQ(result.exit_code, 7);
}

TEST(LaunchStopTest, RanksThatWillNotDieAreKilledAfterTheGraceTime) {
  const std::string directory = NewDirectory();
  ASSERT_EQ(mkfifo(absl::StrCat(directory, "/never").c_str(), 0600), 0);
  // Rank 0 is busy and deaf; rank 2 is blocked, with a deaf helper.
  TestLauncher launcher(Shells(3,
                               "cd $DIR; case $RANK in 0) trap '' TERM; touch 0; while :; do :; done;; "
                               "1) until [ -e 0 -a -e 2 ]; do sleep 0.01; done; exit 1;; "
                               "2) (trap '' TERM; touch 2; while :; do sleep 1000; done) & cat never;; esac",
                               {"--grace=0.5"}),
                        {.environment = {{"DIR", directory}}});
  const auto start = std::chrono::steady_clock::now();
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(Lines(result.err), Contains("launch: 500ms of grace are over: SIGKILL for ranks 0, 2"));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 0: stopped by the launcher (killed by SIGKILL)"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchStopTest, WhatNotEvenSigkillEndsIsNamedAndNotWaitedFor) {
  TestLauncher launcher({"--nproc-per-node=2", "--grace=0", Subject(), "unkillable"});
  for (const char* text : {"[0] traced\n", "[1] traced\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  launcher.Signal(SIGTERM);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(Lines(result.err),
              Contains("launch: left behind, as not even SIGKILL ended them: processes of ranks 0, 1"));
}

TEST(LaunchStopTest, RanksAreNotStartedAgainBesideOneThatCouldNotBeKilled) {
  const std::string directory = NewDirectory();
  TestLauncher launcher(Shells(2,
                               absl::StrCat("[ $RANK = 0 ] && exec ", Subject(), " unkillable; until [ -e ", directory,
                                            "/go ]; do sleep 0.01; done; exit 3"),
                               {"--grace=0", "--max-restarts=3"}));
  ASSERT_TRUE(launcher.AwaitOut("[0] traced\n"));
  WriteFile(absl::StrCat(directory, "/go"), "");
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, AllOf(HasSubstr("left behind"), Not(HasSubstr("again"))));
}

TEST(LaunchStopTest, TheRealProgramUnderAShellHasTheGraceTimeToo) {
  // The shell dies of SIGTERM at once; what it runs saves something first.
  const std::string directory = NewDirectory();
  TestLauncher launcher(
      Shells(2,
             "cd $DIR; [ $RANK = 1 ] && { until [ -e ready ]; do sleep 0.01; done; exit 4; }; "
             "sh -c 'trap \"sleep 0.3; touch saved; exit 0\" TERM; touch ready; while :; do sleep 0.01; done'; :"),
      {.environment = {{"DIR", directory}}});
  EXPECT_EQ(launcher.Wait().exit_code, 4);
  struct stat status;
  EXPECT_EQ(stat(absl::StrCat(directory, "/saved").c_str(), &status), 0);
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchStopTest, TheGraceTimeCanBeSetByAVariable) {
  const TestLauncher::Result result =
      RunLauncher(Shells(2, "[ $RANK = 1 ] && exit 6; trap '' TERM; while :; do sleep 1000; done"),
                  {.environment = {{"COHORT_LAUNCH_GRACE", "0.25"}}});
  EXPECT_EQ(result.exit_code, 6);
  EXPECT_THAT(result.err, HasSubstr("SIGKILL in 250ms"));
}

TEST(LaunchStopTest, HelpersThatOutliveTheirRankAreKilledWithTheJob) {
  TestLauncher launcher(Shells(2, "sleep 1000 & exit 0"));
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("killing what was left running in the background by ranks 0, 1"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchStopTest, WhatHasASessionOfItsOwnIsKilledWithTheJobToo) {
  TestLauncher launcher({"--nproc-per-node=2", Subject(), "daemon"});
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(Lines(result.err), Contains("launch: killed what ranks had left running outside their process groups"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

// Waits until the launcher has read the signals that it was sent.
bool AwaitNoPendingSignal(const TestLauncher& launcher) {
  const std::string status = absl::StrCat("/proc/", launcher.pid(), "/status");
  return AwaitCondition([&] { return absl::StrContains(ReadFile(status), "ShdPnd:\t0000000000000000\n"); });
}

// Two ranks that print the signals they get and end with 0 when that is USR2.
class LaunchSignalTest : public testing::Test {
 protected:
  LaunchSignalTest() : launcher_({"--nproc-per-node=2", "--grace=1000", Subject(), "signals", absl::StrCat(SIGUSR2)}) {}

  void SetUp() override {
    for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher_.AwaitOut(text));
  }

  // Sends the launcher a signal and waits until it has read it.
  void Send(int signal) {
    launcher_.SignalAgain(signal);
    ASSERT_TRUE(AwaitNoPendingSignal(launcher_));
  }

  bool AwaitOnBoth(int signal) {
    return launcher_.AwaitOut(absl::StrCat("[0] got ", signal, "\n")) &&
           launcher_.AwaitOut(absl::StrCat("[1] got ", signal, "\n"));
  }

  static int Count(std::string_view text, std::string_view line) {
    const std::vector<std::string> lines = Lines(text);
    return std::count(lines.begin(), lines.end(), line);
  }

  TestLauncher launcher_;
};

// Ranks, each with a helper in the background and one that has left for a session of its own, all deaf to every signal.
std::vector<std::string> DeafFamilies() {
  return Shells(
      2,
      "trap '' TERM INT HUP QUIT USR1 USR2; (echo up; exec sleep 1000) & setsid sh -c 'echo up; exec sleep 1000' & "
      "echo up; while :; do sleep 1000; done",
      {"--grace=1000"});
}

// Processes: two of the launcher, and of each rank a shell, what it sleeps by, and the two helpers.
constexpr int kAllOfTheDeaf = 10;

void AwaitDeafFamilies(const TestLauncher& launcher) {
  ASSERT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().size() == kAllOfTheDeaf; }));
  ASSERT_TRUE(AwaitCondition([&] { return Lines(launcher.out()).size() == 7; })) << launcher.out();
}

// The launcher's other process.
pid_t RankKeeper(const TestLauncher& launcher) {
  const pid_t pid =
      atoi(ReadFile(absl::StrCat("/proc/", launcher.pid(), "/task/", launcher.pid(), "/children")).c_str());
  EXPECT_GT(pid, 0);
  return pid;
}

TEST(LaunchStopTest, NothingSurvivesALauncherThatIsKilled) {
  const std::string directory = NewDirectory();
  TestLauncher launcher(DeafFamilies(), {.environment = {{"TMPDIR", directory}}});
  AwaitDeafFamilies(launcher);
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Wait().exit_code, 137);
  EXPECT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().empty(); }));
  EXPECT_EQ(rmdir(directory.c_str()), 0);  // no file either
}

TEST(LaunchStopTest, NothingSurvivesALauncherThatIsKilledWhileItIsSuspended) {
  TestLauncher launcher(DeafFamilies());
  AwaitDeafFamilies(launcher);
  for (const pid_t pid : launcher.LiveProcesses()) ASSERT_EQ(kill(pid, SIGSTOP), 0);
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Wait().exit_code, 137);
  EXPECT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().empty(); }));
}

TEST(LaunchStopTest, NothingSurvivesIfAllWithTheLaunchersNameAreKilled) {
  // As `killall` and `pkill -f` do.
  TestLauncher launcher(DeafFamilies());
  AwaitDeafFamilies(launcher);
  int num_killed = 0;
  for (const pid_t pid : launcher.LiveProcesses()) {
    const std::string process = absl::StrCat("/proc/", pid);
    if (ReadFile(absl::StrCat(process, "/comm")) == "launch\n" ||
        absl::StrContains(ReadFile(absl::StrCat(process, "/cmdline")), "launch")) {
      ASSERT_EQ(kill(pid, SIGKILL), 0);
      ++num_killed;
    }
  }
  EXPECT_EQ(num_killed, 1);
  EXPECT_EQ(launcher.Wait().exit_code, 137);
  EXPECT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().empty(); }));
}

TEST(LaunchStopTest, IfBothProcessesOfTheLauncherAreKilledTheRanksDie) {
  TestLauncher launcher(DeafFamilies());
  AwaitDeafFamilies(launcher);
  const pid_t keeper = RankKeeper(launcher);
  const std::string ranks = ReadFile(absl::StrCat("/proc/", keeper, "/task/", keeper, "/children"));
  // Neither is to have time to do anything.
  for (const pid_t pid : {launcher.pid(), keeper}) ASSERT_EQ(kill(pid, SIGSTOP), 0);
  for (const pid_t pid : {keeper, launcher.pid()}) ASSERT_EQ(kill(pid, SIGKILL), 0);
  EXPECT_EQ(launcher.Wait().exit_code, 137);
  const auto lives = [&launcher](int rank) {
    const std::vector<pid_t> live = launcher.LiveProcesses();
    return std::find(live.begin(), live.end(), rank) != live.end();
  };
  int num_ranks = 0;
  for (const std::string_view word : absl::StrSplit(ranks, ' ', absl::SkipEmpty())) {
    ++num_ranks;
    EXPECT_TRUE(AwaitCondition([&] { return !lives(atoi(std::string(word).c_str())); }));
  }
  EXPECT_EQ(num_ranks, 2);
}

TEST(LaunchStopTest, NothingSurvivesIfItsWholeProcessGroupIsKilled) {
  // As `timeout -k` does.
  TestLauncher::Setup setup;
  setup.wrapper = {"setsid"};
  TestLauncher launcher(DeafFamilies(), setup);
  AwaitDeafFamilies(launcher);
  ASSERT_EQ(kill(-launcher.pid(), SIGKILL), 0);
  EXPECT_EQ(launcher.Wait().exit_code, 137);
  EXPECT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().empty(); }));
}

TEST(LaunchStopTest, NothingSurvivesIfTheProcessThatLooksAfterTheRanksIsKilled) {
  TestLauncher launcher(DeafFamilies());
  AwaitDeafFamilies(launcher);
  ASSERT_EQ(kill(RankKeeper(launcher), SIGKILL), 0);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.err,
              ContainsRegex("launch: the process that looked after the ranks \\(pid [0-9]+\\) was killed by SIGKILL; "
                            "what it had started has been killed, too"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

class StopRequestTest : public LaunchSignalTest, public testing::WithParamInterface<int> {};

TEST_P(StopRequestTest, ReachesEachRankOnceAndIsNeverASuccess) {
  const int signal = GetParam();
  Send(signal);
  ASSERT_TRUE(AwaitOnBoth(signal));
  launcher_.Signal(SIGUSR2);
  const TestLauncher::Result result = launcher_.Wait();
  EXPECT_EQ(result.exit_code, 128 + signal);
  EXPECT_THAT(result.err, HasSubstr("launch: ranks 0, 1: stopped by the launcher (exited with code 0)\n"));
  EXPECT_EQ(Count(result.out, absl::StrCat("[0] got ", signal)), 1);
  EXPECT_EQ(Count(result.out, absl::StrCat("[1] got ", signal)), 1);
}

INSTANTIATE_TEST_SUITE_P(Signals, StopRequestTest, testing::Values(SIGINT, SIGTERM, SIGHUP, SIGQUIT),
                         [](const auto& info) { return absl::StrCat("Signal", info.param); });

TEST_F(LaunchSignalTest, ASecondInterruptKillsAtOnce) {
  Send(SIGINT);
  ASSERT_TRUE(AwaitOnBoth(SIGINT));
  launcher_.SignalAgain(SIGINT);
  const TestLauncher::Result result = launcher_.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, AllOf(HasSubstr("received SIGINT again: SIGKILL for ranks 0, 1\n"),
                                HasSubstr("ranks 0, 1: stopped by the launcher (killed by SIGKILL)\n")));
}

TEST_F(LaunchSignalTest, WhoSignalsAllProcessesOfTheLauncherSignalsOnce) {
  // As a batch system and systemd do.
  for (const pid_t pid : {RankKeeper(launcher_), launcher_.pid()}) ASSERT_EQ(kill(pid, SIGINT), 0);
  ASSERT_TRUE(AwaitOnBoth(SIGINT));
  launcher_.Signal(SIGUSR2);
  const TestLauncher::Result result = launcher_.Wait();
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, Not(HasSubstr("again")));
  EXPECT_EQ(Count(result.out, "[0] got 2"), 1);
}

// Whether the launcher takes two INTs of one process for one: it is sent the second when it has read the first.
bool TwoInterruptsAreOne() {
  TestLauncher launcher({"--grace=1000", Subject(), "signals", absl::StrCat(SIGUSR2)});
  EXPECT_TRUE(launcher.AwaitOut("ready\n"));
  launcher.Signal(SIGINT);
  EXPECT_TRUE(AwaitNoPendingSignal(launcher));
  launcher.Signal(SIGINT);
  EXPECT_TRUE(launcher.AwaitOut("got 2\n"));
  launcher.Signal(SIGUSR2);
  return !absl::StrContains(launcher.Wait().err, "again");
}

TEST(LaunchStopTest, WhoSignalsTheLauncherAndItsGroupSignalsOnce) {
  // As `timeout` does. On a machine that is busy enough the two may seem to be two acts, but not each time.
  bool is_one = false;
  for (int i = 0; i < 10 && !is_one; ++i) is_one = TwoInterruptsAreOne();
  EXPECT_TRUE(is_one);
}

TEST_F(LaunchSignalTest, ASecondTerminationDoesNotReachTheRanks) {
  Send(SIGTERM);
  ASSERT_TRUE(AwaitOnBoth(SIGTERM));
  Send(SIGTERM);
  launcher_.Signal(SIGUSR2);
  const TestLauncher::Result result = launcher_.Wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_EQ(Count(result.out, "[0] got 15"), 1);
  EXPECT_EQ(Count(result.out, "[1] got 15"), 1);
}

TEST_F(LaunchSignalTest, UserSignalsReachEveryRankAndTheJobGoesOn) {
  Send(SIGUSR1);
  ASSERT_TRUE(AwaitOnBoth(SIGUSR1));
  launcher_.Signal(SIGUSR2);
  const TestLauncher::Result result = launcher_.Wait();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(Count(result.out, "[0] got 10"), 1);
  EXPECT_EQ(Count(result.out, "[1] got 10"), 1);
  EXPECT_EQ(result.err, "");
}

TEST(LaunchStopTest, AStoppedRankCanBeStoppedForGood) {
  TestLauncher launcher(Shells(2, "echo $$; while :; do sleep 0.01; done"));
  ASSERT_TRUE(AwaitCondition([&] { return Lines(launcher.out()).size() == 3; }));
  const std::string line = launcher.out();
  ASSERT_EQ(kill(atoi(line.c_str() + 4), SIGSTOP), 0);
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 143);
}

// ---- Preempted ranks: they have saved, and the same command goes on ----

// A shell command that ends when the launcher has collected rank 0, which wrote its process id into $DIR/0.
constexpr char kUntilRank0IsGone[] =
    "until [ -s $DIR/0 ]; do sleep 0.01; done; while kill -0 $(cat $DIR/0) 2>/dev/null; do sleep 0.01; done; ";
constexpr char kRank0IsPreempted[] = "[ $RANK = 0 ] && { echo $$ > $DIR/0.new; mv $DIR/0.new $DIR/0; exit 75; }; ";

TEST(LaunchStopTest, ARequestToStopIsHeardByALauncherWhoseOtherProcessWasStopped) {
  TestLauncher launcher(Shells(2, "echo ready; exec sleep 1000"));
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  ASSERT_EQ(kill(RankKeeper(launcher), SIGSTOP), 0);
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 143);
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

// The front alone can end a launcher whose other process answers no more: here it waits for a time zone, to say when a rank
// failed.
TEST(LaunchStopTest, ARequestToStopEndsALauncherWhoseOtherProcessHangs) {
  const std::string zone = absl::StrCat(NewDirectory(), "/zone");
  ASSERT_EQ(mkfifo(zone.c_str(), 0600), 0);
  TestLauncher launcher(Shells(2, "[ $RANK = 0 ] && exit 3; exec sleep 1000", {"--grace=0"}),
                        {.environment = {{"TZ", absl::StrCat(":", zone)}}});
  ASSERT_TRUE(launcher.AwaitErr("stopping the others"));
  ASSERT_TRUE(AwaitCondition([&] { return launcher.LiveProcesses().size() == 2; }));  // the ranks are gone
  launcher.Signal(SIGTERM);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.err,
              ContainsRegex("the process that looked after the ranks \\(pid [0-9]+\\) was killed by SIGKILL"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

// Whoever sends TERM may have KILL to follow, and no time for a reader.
TEST(LaunchStopTest, ARequestToStopAfterAFailureDoesNotWaitForAReaderEither) {
  int pipe_ends[2];
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
  TestLauncher::Setup setup;
  setup.out_fd = pipe_ends[1];
  const std::string directory = NewDirectory();
  setup.environment = {{"DIR", directory}};
  TestLauncher launcher(
      Shells(2,
             "[ $RANK = 0 ] && { until [ -e $DIR/ready ]; do sleep 0.01; done; head -c 900000 /dev/zero | "
             "tr '\\0' y; echo; exit 3; }; trap '' TERM; touch $DIR/ready; while :; do sleep 0.01; done",
             {"--grace=1"}),
      setup);
  close(pipe_ends[1]);
  ASSERT_TRUE(launcher.AwaitErr("stopping the others"));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 3);  // nobody has read
  close(pipe_ends[0]);
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchPreemptionTest, TheFirstRankThatIsPreemptedDoesNotHaveTheOthersStopped) {
  // They would tell.
  const TestLauncher::Result result =
      RunLauncher(Shells(3, absl::StrCat(kRank0IsPreempted, "trap 'echo was stopped; exit 1' TERM; ", kUntilRank0IsGone,
                                         "echo saved; exit 75")),
                  {.environment = {{"DIR", NewDirectory()}}});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[1] saved\n"), HasSubstr("[2] saved\n"), Not(HasSubstr("was stopped"))));
  EXPECT_EQ(result.err, "launch: preempted: ranks 0-2 exited with code 75; the same command goes on\n");
}

TEST(LaunchPreemptionTest, RanksThatHadFinishedMakeNoDifference) {
  const TestLauncher::Result result = RunLauncher(Shells(3, "[ $RANK = 1 ] && exit 75; exit 0"));
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_EQ(result.err, "launch: preempted: rank 1 exited with code 75, ranks 0, 2 with 0; the same command goes on\n");
}

TEST(LaunchPreemptionTest, AFailureIsNoPreemption) {
  const TestLauncher::Result result =
      RunLauncher(Shells(3, absl::StrCat(kRank0IsPreempted, kUntilRank0IsGone,
                                         "[ $RANK = 1 ] && exit 3; trap 'exit 75' TERM; while :; do sleep 0.01; done")),
                  {.environment = {{"DIR", NewDirectory()}}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, ContainsRegex("launch: rank 1 \\(pid [0-9]+\\) failed first: exited with code 3"));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 0: was preempted (exited with code 75)"));
  EXPECT_THAT(result.err, Not(HasSubstr("preempted:")));
}

TEST(LaunchPreemptionTest, ARankThatDoesNotEndIsStoppedAfterTheGraceTime) {
  TestLauncher launcher(Shells(2, absl::StrCat(kRank0IsPreempted, "echo $$; exec sleep 1000"), {"--grace=0.5"}),
                        {.environment = {{"DIR", NewDirectory()}}});
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(Lines(result.err), Contains("launch: 500ms after the first rank exited with code 75, rank 1 had not "
                                          "ended: SIGTERM now, SIGKILL in 500ms"));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 0: was preempted (exited with code 75)"));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 1: stopped by the launcher (killed by SIGTERM)"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchPreemptionTest, IfItSavesAndStopsThenItIsAPreemptionAllTheSame) {
  const TestLauncher::Result result = RunLauncher(
      Shells(
          2,
          absl::StrCat("trap 'exit 75' TERM; touch $DIR/$RANK.ready; until [ -e $DIR/1.ready ]; do sleep 0.01; done; ",
                       kRank0IsPreempted, "while :; do sleep 0.01; done"),
          {"--grace=0.5"}),
      {.environment = {{"DIR", NewDirectory()}}});
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(Lines(result.err),
              Contains("launch: preempted: ranks 0, 1 exited with code 75; the same command goes on"));
}

// Two ranks that say when they are ready and end with 75 at any of the signals that ask for it.
std::vector<std::string> Preemptible() {
  return Shells(2, "trap 'exit 75' TERM INT HUP USR1; echo ready; while :; do sleep 0.01; done", {"--grace=1000"});
}

class PreemptingSignalTest : public testing::TestWithParam<int> {};

TEST_P(PreemptingSignalTest, ToTheLauncherEndsItWith75) {
  TestLauncher launcher(Preemptible());
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  launcher.Signal(GetParam());
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 75);
  EXPECT_THAT(Lines(result.err),
              Contains("launch: preempted: ranks 0, 1 exited with code 75; the same command goes on"));
}

INSTANTIATE_TEST_SUITE_P(Signals, PreemptingSignalTest, testing::Values(SIGTERM, SIGINT, SIGHUP, SIGUSR1),
                         [](const auto& info) { return absl::StrCat("Signal", info.param); });

TEST(LaunchPreemptionTest, ARankThatTheSignalKilledHasNotSaved) {
  TestLauncher launcher(Shells(2, "[ $RANK = 0 ] && trap 'exit 75' TERM; echo ready; while :; do sleep 0.01; done"));
  for (const char* text : {"[0] ready\n", "[1] ready\n"}) ASSERT_TRUE(launcher.AwaitOut(text));
  launcher.Signal(SIGTERM);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 143);
  EXPECT_THAT(result.err, Not(HasSubstr("preempted:")));
  EXPECT_THAT(Lines(result.err), Contains("launch: rank 0: stopped by the launcher (exited with code 75)"));
}

TEST(LaunchPreemptionTest, ALauncherThatCannotPrintSaysThatInstead) {
  // The ranks are stopped because of that, and save.
  TestLauncher::Setup setup;
  setup.out_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(setup.out_fd, 0);
  const TestLauncher::Result result = RunLauncher(Preemptible(), setup);
  close(setup.out_fd);
  EXPECT_EQ(result.exit_code, 125);
}

}  // namespace
}  // namespace cohort::launch
