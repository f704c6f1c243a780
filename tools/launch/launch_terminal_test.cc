// The launcher at a terminal: what is typed reaches the first rank, and ^C and ^Z mean what they mean to any program.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

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

// --- The status line.

class StatusTest : public LaunchTerminalTest {
 protected:
  StatusTest() {
    setup_.out_fd = setup_.err_fd = terminal_.get();
    setup_.environment = {{"TERM", "xterm"}, {"DIR", directory_}};
  }

  // Lets the ranks go that wait for it.
  void Go() { WriteFile(absl::StrCat(directory_, "/go"), ""); }

  // Everything that comes out at the terminal until `text` does; the kernel puts a carriage return before each newline.
  std::string ReadUntil(std::string_view text) {
    while (!absl::StrContains(shown_, text)) {
      char buffer[4096];
      const ssize_t count = read(keyboard_.get(), buffer, sizeof(buffer));
      if (count <= 0) break;
      shown_.append(buffer, count);
    }
    return shown_;
  }

  const std::string directory_ = NewDirectory();
  const std::string wait_ = "until [ -e $DIR/go ]; do sleep 0.01; done; ";
  std::string shown_;
};

TEST_F(StatusTest, StandsBelowTheOutputAndIsGoneAtTheEnd) {
  TestLauncher launcher(Shells(2, wait_ + "echo line $RANK", {"--local-ranks-filter=1"}), setup_);
  EXPECT_THAT(ReadUntil("ranks up"), HasSubstr("\r\x1b[Klaunch: 2 of 2 ranks up, 0:00:0"));
  Go();
  EXPECT_EQ(launcher.Wait().exit_code, 0);
  const std::string shown = ReadUntil("line 1\r\n");
  // Erased before the line, and whatever was drawn after it.
  EXPECT_THAT(shown, HasSubstr("\r\x1b[K[1] line 1\r\n"));
  const size_t last_status = shown.rfind("ranks up");
  EXPECT_NE(shown.find("\r\x1b[K", last_status), std::string::npos);
}

TEST_F(StatusTest, CountsTheRanksThatAreUp) {
  TestLauncher launcher(Shells(3, "[ $RANK = 1 ] && exit 0; " + wait_ + "exit 0"), setup_);
  EXPECT_THAT(ReadUntil("2 of 3 ranks up"), HasSubstr("launch: 2 of 3 ranks up"));
  Go();
  EXPECT_EQ(launcher.Wait().exit_code, 0);
}

TEST_F(StatusTest, IsNotThereInTheBackgroundWhereTheShellIs) {
  setup_.wrapper = {"sh", "-c", "set -m; \"$@\" & wait", "sh"};
  TestLauncher launcher(Shells(2, "sleep 1.2; echo end"), setup_);
  EXPECT_EQ(launcher.Wait().exit_code, 0);
  EXPECT_THAT(ReadUntil("end\r\n"), Not(HasSubstr("ranks up")));
}

// Each ends by itself after the time at which the status would have come.
TEST_F(StatusTest, IsNotThereWhereItCannotBe) {
  const std::string script = "sleep 1.2; echo end";
  for (const auto& [ranks, term] : {std::pair(1, "xterm"), std::pair(2, "dumb")}) {
    shown_.clear();
    setup_.environment["TERM"] = term;
    TestLauncher launcher(Shells(ranks, script), setup_);
    EXPECT_EQ(launcher.Wait().exit_code, 0);
    EXPECT_THAT(ReadUntil("end\r\n"), Not(HasSubstr("ranks up")));
  }
  setup_.environment["TERM"] = "xterm";
  setup_.err_fd = -1;
  TestLauncher launcher(Shells(2, script), setup_);
  EXPECT_EQ(launcher.Wait().err, "");
}

}  // namespace
}  // namespace cohort::launch
