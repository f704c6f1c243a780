// The launcher at a terminal: what is typed reaches the first rank, and ^C and ^Z mean what they mean to any program.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/test_launcher.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Subject() { return getenv("SUBJECT"); }

// The third field of /proc/PID/stat: 'T' if the process is stopped.
char StateOf(pid_t pid) {
  const std::string stat = ReadFile(absl::StrCat("/proc/", pid, "/stat"));
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? '-' : stat[name_end + 2];
}

class LaunchTerminalTest : public testing::Test {
 protected:
  LaunchTerminalTest() : keyboard_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    EXPECT_EQ(grantpt(keyboard_.get()), 0);
    EXPECT_EQ(unlockpt(keyboard_.get()), 0);
    terminal_ = UniqueFd(open(ptsname(keyboard_.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
    setup_.terminal_fd = terminal_.get();
  }

  void Type(std::string_view text) { ASSERT_EQ(write(keyboard_.get(), text.data(), text.size()), text.size()); }

  UniqueFd keyboard_;
  UniqueFd terminal_;
  TestLauncher::Setup setup_;
};

TEST_F(LaunchTerminalTest, WhatIsTypedReachesTheFirstRankAlone) {
  TestLauncher launcher(Shells(2, "while read -r line; do echo got $line; done; echo end"), setup_);
  ASSERT_TRUE(launcher.AwaitOut("[1] end\n"));
  Type("one\n");
  ASSERT_TRUE(launcher.AwaitOut("[0] got one\n"));
  Type("two\n\x04");
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[0] got one\n[0] got two\n[0] end\n"));
  EXPECT_THAT(result.out, Not(HasSubstr("[1] got")));
}

TEST_F(LaunchTerminalTest, AnInterruptReachesEachRankOnceAndASecondOneKills) {
  TestLauncher launcher({"--nproc-per-node=4", "--grace=1000", Subject(), "signals", absl::StrCat(SIGUSR2)}, setup_);
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(launcher.AwaitOut(absl::StrCat("[", rank, "] ready\n")));
  Type("\x03");
  for (int rank = 0; rank < 4; ++rank) ASSERT_TRUE(launcher.AwaitOut(absl::StrCat("[", rank, "] got 2\n")));
  Type("\x03");
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 130);
  for (int rank = 0; rank < 4; ++rank) {
    const std::string line = absl::StrCat("[", rank, "] got 2\n");
    EXPECT_EQ(result.out.find(line), result.out.rfind(line)) << result.out;
  }
  EXPECT_THAT(result.err, HasSubstr("ranks 0-3: stopped by the launcher (killed by SIGKILL)"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST_F(LaunchTerminalTest, SuspendingStopsTheRanksAndTheShellsFgContinuesThem) {
  const std::string directory = NewDirectory();
  setup_.wrapper = {"sh", "-c", "set -m; \"$@\"; touch $DIR/suspended; until [ -e $DIR/go ]; do sleep 0.01; done; fg",
                    "sh"};
  setup_.environment["DIR"] = directory;
  TestLauncher launcher(Shells(2, "echo $$; while read -r line; do echo got $line; exit 0; done"), setup_);
  ASSERT_TRUE(
      AwaitCondition([&] { return absl::StrContains(launcher.out(), "[0] ") && launcher.out().back() == '\n'; }));
  const std::string out = launcher.out();
  const pid_t rank = atoi(out.c_str() + out.find("[0] ") + 4);

  Type("\x1a");
  ASSERT_TRUE(AwaitCondition([&] { return access(absl::StrCat(directory, "/suspended").c_str(), F_OK) == 0; }));
  EXPECT_TRUE(AwaitCondition([&] { return StateOf(rank) == 'T'; }));
  WriteFile(absl::StrCat(directory, "/go"), "");
  EXPECT_TRUE(AwaitCondition([&] { return StateOf(rank) != 'T'; }));
  Type("on\n");
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[0] got on\n"));
}

TEST_F(LaunchTerminalTest, WithoutAShellSuspendingDoesNothing) {
  // Nobody could continue the launcher: the kernel ignores ^Z for such a program.
  TestLauncher launcher(Shells(1, "echo ready; read -r line; echo got $line"), setup_);
  ASSERT_TRUE(launcher.AwaitOut("ready\n"));
  Type("\x1aon\n");
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("got on\n"));
}

}  // namespace
}  // namespace cohort::launch
