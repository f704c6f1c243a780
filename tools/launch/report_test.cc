#include "cohort/tools/launch/report.h"

#include <signal.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RankEnd End(int rank, ProcessEnd how, bool was_stopped = false) {
  RankEnd end;
  end.rank = rank;
  end.pid = 4711;
  end.how = how;
  end.was_stopped = was_stopped;
  return end;
}

constexpr ProcessEnd Exit(int code) { return {.exit_code = code}; }
constexpr ProcessEnd Killed(int signal) { return {.signal = signal}; }

TEST(ReportTest, AnEndIsAFailureUnlessItIsZeroOrPreempted) {
  EXPECT_FALSE(IsFailure(Exit(0)));
  EXPECT_FALSE(IsFailure(Exit(75)));
  for (const int code : {1, 74, 76, 203}) EXPECT_TRUE(IsFailure(Exit(code))) << code;
  EXPECT_TRUE(IsFailure(Killed(SIGTERM)));
  EXPECT_TRUE(IsFailure({.signal = SIGKILL, .exit_code = 75}));
}

TEST(ReportTest, AJobWasPreemptedIfARankWasAndNoneFailed) {
  EXPECT_TRUE(WasPreempted({End(0, Exit(75))}));
  EXPECT_TRUE(WasPreempted({End(0, Exit(0)), End(1, Exit(75), true)}));
  EXPECT_FALSE(WasPreempted({}));
  EXPECT_FALSE(WasPreempted({End(0, Exit(0)), End(1, Exit(0))}));
  EXPECT_FALSE(WasPreempted({End(0, Exit(75)), End(1, Exit(1))}));
  EXPECT_FALSE(WasPreempted({End(0, Killed(SIGTERM), true), End(1, Exit(75))}));
}

TEST(ReportTest, APreemptionIsDescribedWithTheRanksThatHadFinished) {
  EXPECT_EQ(DescribePreemption({End(0, Exit(75)), End(1, Exit(75)), End(2, Exit(75))}),
            "preempted: ranks 0-2 exited with code 75; the same command goes on");
  EXPECT_EQ(DescribePreemption({End(0, Exit(0)), End(1, Exit(75)), End(2, Exit(0))}),
            "preempted: rank 1 exited with code 75, ranks 0, 2 with 0; the same command goes on");
}

TEST(ReportTest, ExitCodesAreAsInAShell) {
  EXPECT_EQ(ShellExitCode(Exit(0)), 0);
  EXPECT_EQ(ShellExitCode(Exit(77)), 77);
  EXPECT_EQ(ShellExitCode(Killed(SIGSEGV)), 139);
}

TEST(ReportTest, EndsAreDescribedByCodeOrSignal) {
  EXPECT_EQ(DescribeEnd(Exit(3)), "exited with code 3");
  EXPECT_EQ(DescribeEnd(Killed(SIGSEGV)), "killed by SIGSEGV");
  EXPECT_EQ(DescribeEnd({.signal = SIGABRT, .core_dumped = true}), "killed by SIGABRT (core dumped)");
  EXPECT_EQ(DescribeEnd(Killed(40)), "killed by signal 40");
  EXPECT_EQ(DescribeRank(End(2, Exit(0))), "rank 2 (pid 4711)");
}

TEST(ReportTest, RanksInARowAreJoined) {
  EXPECT_EQ(RankList({}), "");
  EXPECT_EQ(RankList({3}), "3");
  EXPECT_EQ(RankList({0, 1}), "0, 1");
  EXPECT_EQ(RankList({0, 1, 2, 5, 7, 8, 9, 10}), "0-2, 5, 7-10");
}

TEST(ReportTest, ConsequencesAreGroupedByKind) {
  EXPECT_THAT(DescribeConsequences({}), IsEmpty());
  EXPECT_THAT(DescribeConsequences({End(0, Killed(SIGTERM), true), End(1, Exit(1)), End(2, Killed(SIGTERM), true),
                                    End(3, Exit(0)), End(4, Exit(0), true), End(5, Exit(75)), End(6, Exit(75), true)}),
              ElementsAre("rank 1: failed after it (exited with code 1)", "rank 3: had finished (exited with code 0)",
                          "rank 4: stopped by the launcher (exited with code 0)",
                          "rank 6: stopped by the launcher (exited with code 75)",
                          "ranks 0, 2: stopped by the launcher (killed by SIGTERM)",
                          "rank 5: was preempted (exited with code 75)"));
}

}  // namespace
}  // namespace cohort::launch
