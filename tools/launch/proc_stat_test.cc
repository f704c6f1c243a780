#include "cohort/tools/launch/proc_stat.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>

#include "cohort/tools/launch/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

constexpr unsigned kExiting = 0x4;      // PF_EXITING
constexpr unsigned kForkNoExec = 0x40;  // PF_FORKNOEXEC

// A child of its own process group that does `prepare`, says so, and stays until it is killed.
class Child {
 public:
  template <typename Prepare>
  explicit Child(Prepare prepare) {
    int report[2];
    EXPECT_EQ(pipe(report), 0);
    pid_ = fork();
    if (pid_ == 0) {
      prepare();
      if (write(report[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    close(report[1]);
    char ready;
    EXPECT_EQ(read(report[0], &ready, 1), 1);
    close(report[0]);
  }
  ~Child() {
    if (is_collected_) return;
    Kill();
    Collect();
  }

  pid_t pid() const { return pid_; }
  void Kill() { kill(pid_, SIGKILL); }
  void Collect() {
    waitpid(pid_, nullptr, 0);
    is_collected_ = true;
  }

 private:
  pid_t pid_;
  bool is_collected_ = false;
};

TEST(ProcStatTest, ThisProcessSaysOfItselfWhatTheKernelTellsIt) {
  const std::optional<ProcStat> stat = ReadProcStat(getpid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->ppid, getppid());
  EXPECT_EQ(stat->pgrp, getpgrp());
  EXPECT_EQ(stat->flags & kExiting, 0u);
}

TEST(ProcStatTest, AProcessThatHasEndedIsExitingUntilItIsCollectedAndThenItIsNone) {
  Child child([] { setpgid(0, 0); });
  const std::optional<ProcStat> alive = ReadProcStat(child.pid());
  ASSERT_TRUE(alive.has_value());
  EXPECT_EQ(alive->ppid, getpid());
  EXPECT_EQ(alive->pgrp, child.pid());
  EXPECT_EQ(alive->flags & (kExiting | kForkNoExec), kForkNoExec);

  child.Kill();
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, child.pid(), &info, WEXITED | WNOWAIT), 0);
  const std::optional<ProcStat> ended = ReadProcStat(child.pid());
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->ppid, getpid());
  EXPECT_EQ(ended->flags & kExiting, kExiting);

  child.Collect();
  EXPECT_FALSE(ReadProcStat(child.pid()).has_value());
}

TEST(ProcStatTest, TheForegroundGroupIsTheTerminals) {
  const UniqueFd terminal(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  ASSERT_EQ(grantpt(terminal.get()), 0);
  ASSERT_EQ(unlockpt(terminal.get()), 0);
  const char* const name = ptsname(terminal.get());
  const Child with([&] {
    if (setsid() < 0 || open(name, O_RDWR) < 0) _exit(1);  // a leader's first terminal becomes its own
  });
  const Child without([] { setsid(); });
  ASSERT_TRUE(ReadProcStat(with.pid()).has_value());
  EXPECT_EQ(ReadProcStat(with.pid())->tpgid, with.pid());
  ASSERT_TRUE(ReadProcStat(without.pid()).has_value());
  EXPECT_EQ(ReadProcStat(without.pid())->tpgid, -1);
}

class NamedProcessTest : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Names, NamedProcessTest,
                         testing::Values("plain", "two words", ") R 1 1 1 1 1 4", "((", "))", "a) S 7 (b", ")\n) ",
                                         ""));

TEST_P(NamedProcessTest, IsReadWhateverItsNameHolds) {
  const Child child([] {
    setpgid(0, 0);
    prctl(PR_SET_NAME, GetParam());
  });
  const std::optional<ProcStat> stat = ReadProcStat(child.pid());
  ASSERT_TRUE(stat.has_value());
  EXPECT_EQ(stat->ppid, getpid());
  EXPECT_EQ(stat->pgrp, child.pid());
  EXPECT_EQ(stat->flags & (kExiting | kForkNoExec), kForkNoExec);
}

}  // namespace
}  // namespace cohort::launch
