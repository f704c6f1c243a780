// Under torchrun's agent, which this test plays: it serves the store at MASTER_ADDR:MASTER_PORT, and restarts the ranks
// without restarting the store.

#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/testing/scripted_job.h"
#include "cohort/runtime/testing/serve_tcp_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace cohort {
namespace {

using ::cohort::testing::ScriptedJob;
using ::cohort::testing::ScriptedRank;
using ::cohort::testing::StepReport;
using ::testing::HasSubstr;

// The agent's store, at a port of its own choice.
class Agent {
 public:
  explicit Agent(bool use_libuv = true) : store_(testing::ServeTcpStore(use_libuv)) {}

  ScriptedRank::Environment EnvironmentOfStart(int restart_count) const {
    return {{"MASTER_PORT", absl::StrCat(store_->getPort())},
            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
            {"TORCHELASTIC_RUN_ID", "run"},
            {"TORCHELASTIC_RESTART_COUNT", absl::StrCat(restart_count)}};
  }

  int64_t NumKeys() { return store_->getNumKeys(); }

 private:
  const c10::intrusive_ptr<c10d::TCPStore> store_;
};

void ExpectSuccess(ScriptedRank& rank) {
  for (const StepReport& report : rank.AwaitEnd()) EXPECT_EQ(report.code, "OK") << report.step << " " << report.text;
  EXPECT_EQ(rank.exit_code(), 0);
  EXPECT_EQ(rank.Errors(), "");
}

class AgentStoreServerTest : public ::testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(WithAndWithoutLibuv, AgentStoreServerTest, ::testing::Bool());

TEST_P(AgentStoreServerTest, RanksMeetThroughTheAgentsStoreStartAfterStart) {
  Agent agent(GetParam());
  ScriptedJob job(2);
  for (int restart_count : {0, 1}) {
    const int64_t num_keys = agent.NumKeys();
    std::vector<ScriptedRank> ranks;
    // The one that waits first: a store must wake it.
    for (int rank : {1, 0}) {
      ranks.push_back(
          job.Start(rank, {"init=gloo", "barrier", "sum=3", "shutdown"}, agent.EnvironmentOfStart(restart_count)));
    }
    for (ScriptedRank& rank : ranks) ExpectSuccess(rank);
    EXPECT_GT(agent.NumKeys(), num_keys) << "they met somewhere else";
  }
}

// What the first start has left in the store must not be taken for the second's.
TEST(AgentStoreTest, ARestartAfterADeathMeetsAnew) {
  Agent agent;
  ScriptedJob job(2);
  ScriptedRank victim = job.Start(1, {"init=gloo", "barrier", "kill"}, agent.EnvironmentOfStart(0));
  ScriptedRank survivor = job.Start(0, {"init=gloo", "barrier", "barrier"}, agent.EnvironmentOfStart(0));
  const std::vector<StepReport> reports = survivor.AwaitEnd();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[2].code, "UNAVAILABLE");
  EXPECT_THAT(reports[2].text, HasSubstr("rank 1"));
  std::vector<ScriptedRank> ranks;
  for (int rank : {0, 1})
    ranks.push_back(job.Start(rank, {"init=gloo", "barrier", "shutdown"}, agent.EnvironmentOfStart(1)));
  for (ScriptedRank& rank : ranks) ExpectSuccess(rank);
}

// The store is not rank 0's, so nobody minds when it goes.
TEST(AgentStoreTest, Rank0MayLeaveFirst) {
  Agent agent;
  ScriptedJob job(2);
  const std::string sign = cohort::testing::NewPath("sign");
  ScriptedRank main = job.Start(0, {"init=gloo", "barrier", "destroy"}, agent.EnvironmentOfStart(0));
  ScriptedRank other =
      job.Start(1, {"init=gloo", "barrier", absl::StrCat("await=", sign), "shutdown"}, agent.EnvironmentOfStart(0));
  ExpectSuccess(main);
  cohort::testing::GiveSign(sign);
  ExpectSuccess(other);
}

TEST(AgentStoreTest, ASecondRank0IsRefused) {
  Agent agent;
  ScriptedJob job(2);
  ScriptedRank first = job.Start(0, {"init=gloo", "barrier", "shutdown"}, agent.EnvironmentOfStart(0));
  ScriptedRank second = job.Start(0, {"init=gloo", "barrier", "shutdown"}, agent.EnvironmentOfStart(0));
  cohort::testing::AwaitThat([&] { return !first.Reports().empty() || !second.Reports().empty(); });
  const bool first_is_refused = !first.Reports().empty();
  ScriptedRank& refused = first_is_refused ? first : second;
  EXPECT_EQ(refused.Reports()[0].code, "INVALID_ARGUMENT");
  EXPECT_THAT(refused.Reports()[0].text, HasSubstr("RANK=0"));
  ScriptedRank other = job.Start(1, {"init=gloo", "barrier", "shutdown"}, agent.EnvironmentOfStart(0));
  ExpectSuccess(other);
  ExpectSuccess(first_is_refused ? second : first);
}

TEST(AgentStoreTest, AnAgentWithoutAStoreIsMissedByName) {
  ScriptedJob job(2);
  ScriptedRank rank = job.Start(0, {"meet_for=1", "init=gloo"}, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const std::vector<StepReport> reports = rank.AwaitEnd();
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[1].code, "DEADLINE_EXCEEDED");
  EXPECT_THAT(reports[1].text, HasSubstr("the launcher's store"));
}

}  // namespace
}  // namespace cohort
