#include "cohort/tools/launch/dry_run.h"

#include <stdio.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a shell prints that runs `script`.
std::string Shell(const std::string& script) {
  FILE* const shell = popen(script.c_str(), "r");
  EXPECT_NE(shell, nullptr);
  std::string text;
  char buffer[1000];
  for (size_t count; (count = fread(buffer, 1, sizeof(buffer), shell)) > 0;) text.append(buffer, count);
  EXPECT_EQ(pclose(shell), 0);
  return text;
}

JobPlan Plan() {
  JobPlan plan;
  plan.nproc_per_node = 2;
  plan.nnodes = 2;
  plan.node_rank = 1;
  plan.master_addr = "node-0";
  plan.master_port = 29500;
  plan.run_id = "job";
  return plan;
}

TEST(DryRunTest, AShellTakesAQuotedWordForOneWord) {
  for (const std::string word :
       {"plain", "", "a b", "it's", "$HOME", "`id`", "a\nb", "*", "~", "#x", "-n", "\\", "\"'\""}) {
    EXPECT_EQ(Shell(absl::StrCat("printf '%s|' ", ShellQuoted(word))), word + "|");
  }
  EXPECT_EQ(ShellQuoted("./a-b_c.d/e:f=g"), "./a-b_c.d/e:f=g");
}

TEST(DryRunTest, EachRankIsACommentAndACommand) {
  const std::string text = DescribeRanks(Plan(), {}, {"./trainer", "--name=a b"}, OutputPlan(2));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  ASSERT_THAT(lines,
              ElementsAre("# rank 2: standard output to console, standard error to console", StartsWith("env "),
                          "# rank 3: standard output to console, standard error to console", StartsWith("env "), ""));
  EXPECT_THAT(lines[1], AllOf(HasSubstr(" RANK=2 "), HasSubstr(" LOCAL_RANK=0 "), HasSubstr(" WORLD_SIZE=4 "),
                              HasSubstr(" MASTER_ADDR=node-0 "), HasSubstr(" MASTER_PORT=29500 "),
                              HasSubstr(" OMP_NUM_THREADS=1 "), EndsWith(" ./trainer '--name=a b'")));
  EXPECT_THAT(lines[3], HasSubstr(" RANK=3 "));
}

TEST(DryRunTest, TheCommandStartsTheRankAsTheLauncherWould) {
  const Environment inherited = {{"RANK", "7"}, {"TORCHELASTIC_ERROR_FILE", "/outer"}, {"OTHER", "x"}};
  const JobPlan plan = Plan();
  const std::string text = DescribeRanks(plan, inherited, {"env"}, OutputPlan(2));
  std::vector<std::string> commands = absl::StrSplit(text, '\n');
  const std::string printed = Shell(absl::StrCat(
      "RANK=7 TORCHELASTIC_ERROR_FILE=/outer OTHER=x; export RANK TORCHELASTIC_ERROR_FILE OTHER; ", commands[1]));
  for (const std::string& entry : EnvironmentEntries(RankEnvironment(plan, 0, inherited))) {
    EXPECT_THAT(printed, HasSubstr(entry + "\n"));
  }
  EXPECT_THAT(printed, Not(HasSubstr("/outer")));
}

TEST(DryRunTest, WhatTheUserHasSetIsShownAsTheRankGetsIt) {
  EXPECT_THAT(DescribeRanks(Plan(), {{"OMP_NUM_THREADS", "4"}, {"SECRET", "x"}}, {"p"}, OutputPlan(2)),
              AllOf(HasSubstr(" OMP_NUM_THREADS=4 "), Not(HasSubstr("SECRET"))));
}

TEST(DryRunTest, WhereTheOutputGoesIsSaid) {
  const OutputPlan outputs = *MakeOutputPlan({.redirects = "0:3", .tee = "1:1", .local_ranks_filter = "1"}, 2);
  EXPECT_THAT(DescribeRanks(Plan(), {}, {"p"}, outputs),
              AllOf(HasSubstr("# rank 2: standard output to file, standard error to file\n"),
                    HasSubstr("# rank 3: standard output to console and file, standard error to console\n")));
}

}  // namespace
}  // namespace cohort::launch
