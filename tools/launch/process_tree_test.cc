#include "cohort/tools/launch/process_tree.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/process_table.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

class ProcessTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(ProcessTable::AdoptOrphans(), absl_testing::IsOk());
    ASSERT_EQ(pipe(report_), 0);
  }

  // Ignores all that can be ignored, says who it is, and stays.
  [[noreturn]] void Stay() {
    for (int signal = 1; signal < SIGRTMAX; ++signal) ::signal(signal, SIG_IGN);
    const pid_t self = getpid();
    if (write(report_[1], &self, sizeof(self)) != sizeof(self)) _exit(1);
    for (;;) pause();
  }

  pid_t Await() {
    pid_t pid = 0;
    EXPECT_EQ(read(report_[0], &pid, sizeof(pid)), sizeof(pid));
    return pid;
  }

  static bool Lives(pid_t pid) { return kill(pid, 0) == 0; }

  int report_[2];
};

TEST_F(ProcessTreeTest, WithoutChildrenThereIsNothingToDo) {
  EXPECT_EQ(KillDescendants(absl::Minutes(1)), Descendants::kNone);
}

TEST_F(ProcessTreeTest, WhatHasEndedIsWaitedForAndDoesNotCount) {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(KillDescendants(absl::Minutes(1)), Descendants::kNone);
  EXPECT_EQ(waitpid(child, nullptr, WNOHANG), -1);
}

TEST_F(ProcessTreeTest, NothingSurvivesWhateverItsSessionAndWhateverItIgnores) {
  if (fork() == 0) {
    if (fork() == 0) {  // a daemon: a session of its own, and its parent gone
      setsid();
      if (fork() != 0) _exit(0);
      if (fork() == 0) Stay();
      Stay();
    }
    if (fork() == 0) {
      setpgid(0, 0);
      Stay();
    }
    Stay();
  }
  std::vector<pid_t> all;
  for (int i = 0; i < 4; ++i) all.push_back(Await());
  for (const pid_t pid : all) EXPECT_TRUE(Lives(pid));
  EXPECT_EQ(KillDescendants(absl::Minutes(1)), Descendants::kKilled);
  for (const pid_t pid : all) EXPECT_FALSE(Lives(pid));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(ProcessTreeTest, ItEndsAfterItsPatience) {
  if (fork() == 0) Stay();
  const pid_t child = Await();
  EXPECT_EQ(KillDescendants(absl::ZeroDuration()), Descendants::kLeft);
  EXPECT_TRUE(Lives(child));
  EXPECT_EQ(KillDescendants(absl::Minutes(1)), Descendants::kKilled);
  EXPECT_FALSE(Lives(child));
}

}  // namespace
}  // namespace cohort::launch
