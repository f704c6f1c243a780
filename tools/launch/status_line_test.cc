#include "cohort/tools/launch/status_line.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "absl/time/time.h"
#include "cohort/tools/launch/console.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

class StatusLineTest : public testing::Test {
 protected:
  StatusLineTest()
      : keyboard_(posix_openpt(O_RDWR | O_NOCTTY)), file_(open(testing::TempDir().c_str(), O_RDWR | O_TMPFILE, 0600)) {
    EXPECT_EQ(grantpt(keyboard_.get()), 0);
    EXPECT_EQ(unlockpt(keyboard_.get()), 0);
    terminal_ = UniqueFd(open(ptsname(keyboard_.get()), O_RDWR | O_NOCTTY));
    EXPECT_TRUE(terminal_);
  }

  void SetColumns(unsigned short columns) {
    const winsize size = {.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ASSERT_EQ(ioctl(terminal_.get(), TIOCSWINSZ, &size), 0);
  }

  UniqueFd keyboard_;
  UniqueFd terminal_;
  UniqueFd file_;
};

TEST_F(StatusLineTest, HasAPlaceOnATerminalAlone) {
  const Environment xterm = {{"TERM", "xterm"}};
  EXPECT_TRUE(HasPlaceForStatus(terminal_.get(), terminal_.get(), xterm, 2));
  EXPECT_TRUE(HasPlaceForStatus(file_.get(), terminal_.get(), xterm, 2));
  EXPECT_FALSE(HasPlaceForStatus(terminal_.get(), file_.get(), xterm, 2));
  EXPECT_FALSE(HasPlaceForStatus(file_.get(), file_.get(), xterm, 2));
}

TEST_F(StatusLineTest, HasNoneBesideAPipeThatMayEndAtTheSameTerminal) {
  const Environment xterm = {{"TERM", "xterm"}};
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const UniqueFd read_end(fds[0]), write_end(fds[1]);
  EXPECT_FALSE(HasPlaceForStatus(write_end.get(), terminal_.get(), xterm, 2));
  const UniqueFd other(socket(AF_UNIX, SOCK_STREAM, 0));
  EXPECT_FALSE(HasPlaceForStatus(other.get(), terminal_.get(), xterm, 2));
}

TEST_F(StatusLineTest, HasNoneWhereNoLineCanBeErasedAndForALoneRank) {
  for (const Environment& environment : {Environment{}, Environment{{"TERM", "dumb"}}, Environment{{"TERM", ""}}}) {
    EXPECT_FALSE(HasPlaceForStatus(terminal_.get(), terminal_.get(), environment, 2));
  }
  EXPECT_FALSE(HasPlaceForStatus(terminal_.get(), terminal_.get(), {{"TERM", "xterm"}}, 1));
}

TEST_F(StatusLineTest, SaysHowManyRanksAreUpAndForHowLong) {
  SetColumns(80);
  EXPECT_EQ(StatusText(3, 4, absl::Seconds(62.9), terminal_.get()), "launch: 3 of 4 ranks up, 0:01:02");
  EXPECT_EQ(StatusText(4, 4, absl::Hours(100), terminal_.get()), "launch: 4 of 4 ranks up, 100:00:00");
}

TEST_F(StatusLineTest, FitsIntoOneLine) {
  SetColumns(10);
  EXPECT_EQ(StatusText(3, 4, absl::Seconds(1), terminal_.get()), "launch: 3");
  SetColumns(0);
  EXPECT_EQ(StatusText(3, 4, absl::Seconds(1), terminal_.get()), "launch: 3 of 4 ranks up, 0:00:01");
}

TEST_F(StatusLineTest, WhoWasStartedAtNoTerminalIsInNoBackground) {
  const pid_t daemon = fork();
  if (daemon == 0) {
    setsid();
    for (;;) pause();
  }
  EXPECT_TRUE(IsInForeground(daemon));
  kill(daemon, SIGKILL);
  waitpid(daemon, nullptr, 0);
  EXPECT_TRUE(IsInForeground(daemon)) << "it has gone";
}

TEST_F(StatusLineTest, IsUpdatedOnceASecondWhereThereIsAPlaceAndNeverElsewhere) {
  Console console(terminal_.get(), terminal_.get());
  const StatusLine drawn(console, getpid(), {{"TERM", "xterm"}}, 2);
  ASSERT_TRUE(drawn.TimeLeft().has_value());
  EXPECT_GT(*drawn.TimeLeft(), absl::ZeroDuration());
  EXPECT_LE(*drawn.TimeLeft(), absl::Seconds(1));
  Console file(file_.get(), file_.get());
  EXPECT_EQ(StatusLine(file, getpid(), {{"TERM", "xterm"}}, 2).TimeLeft(), std::nullopt);
}

}  // namespace
}  // namespace cohort::launch
