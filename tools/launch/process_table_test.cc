#include "cohort/tools/launch/process_table.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ProcessTableTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_THAT(ProcessTable::AdoptOrphans(), absl_testing::IsOk()); }

  ~ProcessTableTest() override {
    table_.SignalAll(SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
  }

  // Starts the leader of a new process group.
  pid_t StartLeader(const std::function<void()>& body) {
    const pid_t pid = fork();
    if (pid == 0) {
      setpgid(0, 0);
      body();
      _exit(0);
    }
    setpgid(pid, pid);
    table_.Add(pid);
    return pid;
  }

  // Waits until a child of this process has ended, without collecting it.
  static void AwaitZombie(idtype_t type, pid_t pid) {
    siginfo_t info;
    ASSERT_EQ(waitid(type, pid, &info, WEXITED | WNOWAIT), 0);
  }

  ProcessTable table_;
};

void Sleep() {
  for (;;) pause();
}

TEST_F(ProcessTableTest, AnEndIsToldOnceWithItsCodeOrSignal) {
  const pid_t exits = StartLeader([] { _exit(7); });
  const pid_t killed = StartLeader(Sleep);
  EXPECT_FALSE(table_.CollectEnd(1).has_value());
  kill(killed, SIGTERM);
  AwaitZombie(P_PID, exits);
  AwaitZombie(P_PID, killed);

  std::optional<ProcessEnd> end = table_.CollectEnd(0);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 7);
  EXPECT_EQ(end->signal, 0);
  EXPECT_FALSE(table_.AllHaveEnded());

  end = table_.CollectEnd(1);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->signal, SIGTERM);
  EXPECT_TRUE(table_.AllHaveEnded());
  EXPECT_FALSE(table_.CollectEnd(0).has_value());
}

TEST_F(ProcessTableTest, ADyingProcessIsToldFromALivingOne) {
  const pid_t pid = StartLeader(Sleep);
  EXPECT_FALSE(table_.IsDying(0));
  kill(pid, SIGKILL);
  AwaitZombie(P_PID, pid);
  EXPECT_TRUE(table_.IsDying(0));
}

TEST_F(ProcessTableTest, AGroupLivesAsLongAsAHelperOfItsLeader) {
  const pid_t leader = StartLeader([] {
    if (fork() == 0) Sleep();
  });
  AwaitZombie(P_PID, leader);
  EXPECT_TRUE(table_.CollectEnd(0).has_value());
  EXPECT_TRUE(table_.AllHaveEnded());
  EXPECT_THAT(table_.LiveGroups(), ElementsAre(0));
  table_.SignalAll(SIGTERM);
  AwaitZombie(P_PGID, leader);
  EXPECT_EQ(table_.ReapOrphans(), std::nullopt);
  EXPECT_THAT(table_.LiveGroups(), IsEmpty());
}

TEST_F(ProcessTableTest, ALeaderIsNeverReapedAsAnOrphan) {
  const pid_t leader = StartLeader([] { _exit(5); });
  AwaitZombie(P_PID, leader);
  EXPECT_EQ(table_.ReapOrphans(), 0);
  EXPECT_EQ(table_.CollectEnd(0)->exit_code, 5);
  EXPECT_EQ(table_.ReapOrphans(), std::nullopt);
}

TEST_F(ProcessTableTest, ASignalReachesLeadersAndHelpersOfEveryGroup) {
  std::vector<pid_t> leaders;
  for (int i = 0; i < 2; ++i) {
    leaders.push_back(StartLeader([] {
      if (fork() == 0) Sleep();
      Sleep();
    }));
  }
  table_.SignalAll(SIGTERM);
  for (size_t i = 0; i < 2; ++i) {
    AwaitZombie(P_PID, leaders[i]);
    EXPECT_EQ(table_.CollectEnd(i)->signal, SIGTERM);
  }
  // Each helper is ours once its leader has gone, if it was born in time.
  while (!table_.LiveGroups().empty()) EXPECT_EQ(table_.ReapOrphans(), std::nullopt);
}

TEST_F(ProcessTableTest, ALeaderThatHasMovedToAnotherGroupIsSignalled) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t leader = StartLeader([&] {
    if (setpgid(0, getpgid(getppid())) != 0 || write(report[1], "x", 1) != 1) return;  // the group of the test itself
    Sleep();
  });
  char moved;
  ASSERT_EQ(read(report[0], &moved, 1), 1);
  table_.SignalAll(SIGTERM);
  AwaitZombie(P_PID, leader);
  EXPECT_EQ(table_.CollectEnd(0)->signal, SIGTERM);
}

TEST_F(ProcessTableTest, AHelperWithASessionOfItsOwnIsReapedButNotSignalled) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t leader = StartLeader([&] {
    if (fork() != 0) return;
    setsid();
    const pid_t self = getpid();
    if (write(report[1], &self, sizeof(self)) == sizeof(self)) Sleep();
  });
  pid_t helper = 0;
  ASSERT_EQ(read(report[0], &helper, sizeof(helper)), sizeof(helper));
  AwaitZombie(P_PID, leader);
  ASSERT_TRUE(table_.CollectEnd(0).has_value());
  EXPECT_THAT(table_.LiveGroups(), IsEmpty());
  table_.SignalAll(SIGKILL);
  EXPECT_EQ(table_.ReapOrphans(), std::nullopt);
  EXPECT_EQ(kill(helper, 0), 0);

  kill(helper, SIGKILL);
  AwaitZombie(P_PID, helper);
  EXPECT_EQ(table_.ReapOrphans(), std::nullopt);
  EXPECT_NE(kill(helper, 0), 0);
}

}  // namespace
}  // namespace cohort::launch
