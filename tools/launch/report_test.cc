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

TEST(ReportTest, AnEndIsAFailureUnlessItIsZero) {
  EXPECT_FALSE(IsFailure(Exit(0)));
  EXPECT_TRUE(IsFailure(Exit(1)));
  EXPECT_TRUE(IsFailure(Killed(SIGTERM)));
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
                                    End(3, Exit(0)), End(4, Exit(0), true)}),
              ElementsAre("rank 1: failed after it (exited with code 1)", "rank 3: had finished (exited with code 0)",
                          "rank 4: stopped by the launcher (exited with code 0)",
                          "ranks 0, 2: stopped by the launcher (killed by SIGTERM)"));
}

}  // namespace
}  // namespace cohort::launch
