#include "cohort/tools/launch/environment.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

JobPlan TwoNodesOfFour() {
  return {.nproc_per_node = 4,
          .nnodes = 2,
          .node_rank = 1,
          .master_addr = "node-0",
          .master_port = 29500,
          .run_id = "job-7"};
}

TEST(EnvironmentTest, TheFirstOfTwoEntriesCountsAndMalformedOnesAreDropped) {
  const char* const entries[] = {"A=1", "B=x=y", "A=2", "no equals sign", "C=", nullptr};
  EXPECT_THAT(ReadEnvironment(entries), ElementsAre(Pair("A", "1"), Pair("B", "x=y"), Pair("C", "")));
}

TEST(EnvironmentTest, EntriesAreWhatExecWants) {
  EXPECT_THAT(EnvironmentEntries({{"A", "1"}, {"B", ""}}), ElementsAre("A=1", "B="));
}

TEST(EnvironmentTest, ARankIsToldItsPlaceByTorchrunsVariables) {
  EXPECT_THAT(RankEnvironment(TwoNodesOfFour(), 2, {}),
              ElementsAre(Pair("GROUP_RANK", "1"), Pair("GROUP_WORLD_SIZE", "2"), Pair("LOCAL_RANK", "2"),
                          Pair("LOCAL_WORLD_SIZE", "4"), Pair("MASTER_ADDR", "node-0"), Pair("MASTER_PORT", "29500"),
                          Pair("OMP_NUM_THREADS", "1"), Pair("RANK", "6"), Pair("ROLE_NAME", "default"),
                          Pair("ROLE_RANK", "6"), Pair("ROLE_WORLD_SIZE", "8"), Pair("TORCHELASTIC_MAX_RESTARTS", "0"),
                          Pair("TORCHELASTIC_RESTART_COUNT", "0"), Pair("TORCHELASTIC_RUN_ID", "job-7"),
                          Pair("TORCHELASTIC_USE_AGENT_STORE", "False"), Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
                          Pair("WORLD_SIZE", "8")));
}

TEST(EnvironmentTest, TheUsersOwnDefaultsAreKept) {
  const Environment environment =
      RankEnvironment(TwoNodesOfFour(), 0,
                      {{"OMP_NUM_THREADS", "8"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}, {"HOME", "/home/user"}});
  EXPECT_EQ(environment.at("OMP_NUM_THREADS"), "8");
  EXPECT_EQ(environment.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
  EXPECT_EQ(environment.at("HOME"), "/home/user");
}

TEST(EnvironmentTest, ALoneRankMayUseAllProcessors) {
  JobPlan plan = TwoNodesOfFour();
  plan.nproc_per_node = 1;
  EXPECT_FALSE(RankEnvironment(plan, 0, {}).contains("OMP_NUM_THREADS"));
}

TEST(EnvironmentTest, ASurroundingJobsVariablesAreReplacedOrRemoved) {
  Environment outer = RankEnvironment(TwoNodesOfFour(), 3, {});
  outer["TORCHELASTIC_ERROR_FILE"] = "/tmp/error.json";
  JobPlan inner;
  inner.nproc_per_node = 2;
  inner.master_addr = "127.0.0.1";
  inner.master_port = 4000;
  inner.run_id = "inner";
  // OMP_NUM_THREADS cannot be told from one that the user set.
  EXPECT_EQ(RankEnvironment(inner, 1, outer), RankEnvironment(inner, 1, {}));
}

TEST(EnvironmentTest, ARankOfAnotherJobIsRecognised) {
  EXPECT_FALSE(IsInsideARank({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}));
  EXPECT_TRUE(IsInsideARank({{"RANK", "0"}}));
  EXPECT_TRUE(IsInsideARank({{"WORLD_SIZE", "1"}}));
  EXPECT_TRUE(IsInsideARank({{"TORCHELASTIC_RUN_ID", "none"}}));
}

}  // namespace
}  // namespace cohort::launch
