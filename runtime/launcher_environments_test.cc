// What RankInfo makes of the environments of launchers: each row of the table in docs/launching.md, recorded where a
// launcher could be run, and what is missing, malformed or contradictory in them.

#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/testing/recorded_environments.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::FromRecording;
using ::cohort::testing::In;
using ::cohort::testing::Variables;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// `recording`, with `changes` in it; "" takes a variable away.
Variables With(std::string_view recording, const Variables& changes) {
  Variables variables = FromRecording(recording);
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  return variables;
}

absl::StatusOr<RankInfo> Parse(const Variables& variables) { return ParseRankInfo(In(variables)); }

// rank/world local_rank/local_world address:port
std::string Summary(const absl::StatusOr<RankInfo>& info) {
  if (!info.ok()) return info.status().ToString();
  std::string text =
      absl::StrCat(info->rank, "/", info->world_size, " ", info->local_rank, "/", info->local_world_size);
  if (info->world_size > 1) absl::StrAppend(&text, " ", info->master_addr, ":", info->master_port);
  return text;
}

auto Refuses(std::vector<std::string> words) {
  std::vector<::testing::Matcher<std::string>> all;
  for (const std::string& word : words) all.push_back(HasSubstr(word));
  return StatusIs(absl::StatusCode::kInvalidArgument, ::testing::AllOfArray(all));
}

// ---- The order ----

constexpr std::string_view kTorchrun = R"(
RANK=5
WORLD_SIZE=8
LOCAL_RANK=1
LOCAL_WORLD_SIZE=4
MASTER_ADDR=10.0.0.1
MASTER_PORT=29500
)";

// A mixture of two would have a rank of one and a size of the other.
TEST(PrecedenceTest, TorchrunsVariablesComeFirst) {
  for (const std::string_view other :
       {testing::kMpirun4, testing::kMpirun5, testing::kSrunTwoNodesLast, testing::kPrterun}) {
    EXPECT_EQ(Summary(Parse(With(other, FromRecording(kTorchrun)))), "5/8 1/4 10.0.0.1:29500");
  }
}

TEST(PrecedenceTest, MpirunComesBeforeTheSlurmStepOfItsDaemon) {
  Variables variables = FromRecording(testing::kSrunTwoNodesLast);
  variables.merge(FromRecording(testing::kMpirun5));
  const absl::StatusOr<RankInfo> info = Parse(variables);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->rank, 1);
  EXPECT_EQ(info->world_size, 2);
  EXPECT_EQ(info->run_id, "prterun-node-34@1");
}

TEST(PrecedenceTest, SlurmComesBeforePmix) {
  Variables variables = FromRecording(testing::kSrunTwoNodesLast);
  variables.merge(FromRecording(testing::kPrterun));
  EXPECT_EQ(Summary(Parse(variables)), "2/3 0/1 n01:20776");
}

TEST(PrecedenceTest, HalfOfTorchrunsVariablesIsAnErrorThatNamesWhoseElseAreThere) {
  EXPECT_THAT(Parse(With(testing::kSrunTwoNodesLast, {{"WORLD_SIZE", "3"}})),
              Refuses({"lacks RANK and MASTER_ADDR and MASTER_PORT", "the variables of Slurm are there, too",
                       "those of torchrun come first"}));
  EXPECT_THAT(Parse({{"WORLD_SIZE", "3"}}), StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("come first"))));
}

TEST(PrecedenceTest, AMalformedStepIsNoErrorUnderTorchrun) {
  EXPECT_EQ(Summary(Parse(With(kTorchrun, {{"SLURM_STEP_ID", "x"}, {"OMPI_COMM_WORLD_RANK", "x"}}))),
            "5/8 1/4 10.0.0.1:29500");
}

TEST(PrecedenceTest, WhatIsGivenForTheMasterCountsUnderEachLauncher) {
  for (const std::string_view launcher : {testing::kMpirun4, testing::kSrunTwoNodesLast}) {
    absl::StatusOr<RankInfo> info = Parse(With(launcher, {{"MASTER_ADDR", "[fd00::7]"}, {"MASTER_PORT", "1234"}}));
    ASSERT_THAT(info, IsOk());
    EXPECT_EQ(info->master_addr, "fd00::7");
    EXPECT_EQ(info->master_port, 1234);
    EXPECT_EQ(info->master_derived_from, "");
    info = Parse(With(launcher, {{"MASTER_PORT", "1234"}}));
    ASSERT_THAT(info, IsOk());
    EXPECT_EQ(info->master_port, 1234);
    EXPECT_NE(info->master_derived_from, "");
    EXPECT_THAT(Parse(With(launcher, {{"MASTER_PORT", "66660"}})), Refuses({"MASTER_PORT=\"66660\"", "1 to 65535"}));
    EXPECT_THAT(Parse(With(launcher, {{"MASTER_ADDR", "n 1"}})), Refuses({"MASTER_ADDR=\"n 1\"", "a host name"}));
  }
}

TEST(PrecedenceTest, KubernetesPyTorchJobSetsTorchrunsVariables) {
  EXPECT_EQ(Summary(Parse({{"MASTER_ADDR", "job-master-0"},
                           {"MASTER_PORT", "23456"},
                           {"WORLD_SIZE", "3"},
                           {"RANK", "2"},
                           {"PYTHONUNBUFFERED", "1"}})),
            "2/3 0/1 job-master-0:23456");
}

// ---- Open MPI ----

struct Recorded {
  const char* name;
  std::string_view recording;
  const char* summary;
  const char* run_id;
};
void PrintTo(const Recorded& recorded, std::ostream* out) { *out << recorded.name; }

class RecordedTest : public ::testing::TestWithParam<Recorded> {};
// The ports were computed apart: 20000 + (97 * job + step) % 10000, and 20000 + FNV-1a(name) % 10000.
INSTANTIATE_TEST_SUITE_P(
    Slurm, RecordedTest,
    ::testing::Values(Recorded{"srun -N1 -n2", testing::kSrunOneNode, "1/2 1/2 127.0.0.1:20679", "slurm-7.0"},
                      Recorded{"srun -N2 -n3", testing::kSrunTwoNodesFirst, "0/3 0/2 n01:20776", "slurm-8.0"},
                      Recorded{"srun -N2 -n3", testing::kSrunTwoNodesLast, "2/3 0/1 n01:20776", "slurm-8.0"},
                      Recorded{"a step on fewer nodes than the job has", testing::kBatchStepOneNode,
                               "1/2 1/2 127.0.0.1:20873", "slurm-9.0"},
                      Recorded{"a step of more tasks than the job has", testing::kBatchStepMoreTasks,
                               "6/7 0/1 n01:20874", "slurm-9.1"},
                      Recorded{"srun 26.05", testing::kSrun26, "2/3 0/1 n01:20194", "slurm-2.0"},
                      Recorded{"a step of 26.05", testing::kBatchStep26, "6/7 0/1 n01:20292", "slurm-3.1"}));
INSTANTIATE_TEST_SUITE_P(
    OpenMpi, RecordedTest,
    ::testing::Values(Recorded{"mpirun 4", testing::kMpirun4, "1/2 1/2 127.0.0.1:24417", "1827340289"},
                      Recorded{"mpirun 5", testing::kMpirun5, "1/2 1/2 127.0.0.1:25787", "prterun-node-34@1"},
                      Recorded{"mpirun 6", testing::kMpirun6, "1/2 1/2 127.0.0.1:26717", "prterun-node-21@1"}));

TEST_P(RecordedTest, IsUnderstood) {
  const absl::StatusOr<RankInfo> info = Parse(FromRecording(GetParam().recording));
  EXPECT_EQ(Summary(info), GetParam().summary);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->run_id, GetParam().run_id);
  EXPECT_TRUE(info->has_local_rank);
  EXPECT_FALSE(info->use_agent_store);
  EXPECT_EQ(info->restart_count, 0);
}

TEST(OpenMpiTest, TheLocalRankHasAVariableOfItsOwn) {
  const absl::StatusOr<RankInfo> info = Parse(With(testing::kMpirun5, {{"OMPI_COMM_WORLD_SIZE", "8"},
                                                                       {"OMPI_COMM_WORLD_RANK", "6"},
                                                                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                                                                       {"MASTER_ADDR", "a"}}));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->local_rank, 3) << "and not 6 modulo 4";
  EXPECT_EQ(info->local_world_size, 4);
}

TEST(OpenMpiTest, SeveralMachinesNeedAMasterAddr) {
  const Variables two = With(testing::kMpirun5, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_THAT(Parse(two), Refuses({"lacks MASTER_ADDR", "OMPI_COMM_WORLD_SIZE=4", "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                                   "mpirun -x MASTER_ADDR=HOST"}));
}

TEST(OpenMpiTest, AllRanksOfAnMpirunDeriveOnePort) {
  Variables other = FromRecording(testing::kMpirun5);
  const absl::StatusOr<RankInfo> rank_1 = Parse(other);
  other["OMPI_COMM_WORLD_RANK"] = other["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  const absl::StatusOr<RankInfo> rank_0 = Parse(other);
  other["PMIX_NAMESPACE"] = "prterun-node-35@1";
  const absl::StatusOr<RankInfo> next_job = Parse(other);
  ASSERT_THAT(rank_0, IsOk());
  ASSERT_THAT(rank_1, IsOk());
  ASSERT_THAT(next_job, IsOk());
  EXPECT_EQ(rank_0->master_port, rank_1->master_port);
  EXPECT_NE(rank_0->master_port, next_job->master_port);
  EXPECT_EQ(rank_0->master_derived_from, "Open MPI");
}

TEST(OpenMpiTest, WithoutANameOfTheJobThePortMustBeGiven) {
  const Variables nameless = With(testing::kMpirun4, {{"PMIX_NAMESPACE", ""}, {"OMPI_MCA_ess_base_jobid", ""}});
  EXPECT_THAT(Parse(nameless), Refuses({"lacks MASTER_PORT", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}));
  EXPECT_EQ(Summary(Parse(With(testing::kMpirun4, {{"PMIX_NAMESPACE", ""}}))),
            Summary(Parse(FromRecording(testing::kMpirun4))))
      << "version 4 says it twice";
}

TEST(OpenMpiTest, AWorldOfOneNeedsNoPlaceToMeet) {
  EXPECT_EQ(Summary(Parse({{"OMPI_COMM_WORLD_SIZE", "1"},
                           {"OMPI_COMM_WORLD_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}})),
            "0/1 0/1");
}

TEST(OpenMpiTest, WhatTorchrunWouldSayAboutTheRunIsNotMixedIn) {
  const absl::StatusOr<RankInfo> info = Parse(With(testing::kMpirun5, {{"TORCHELASTIC_RUN_ID", "x"},
                                                                       {"TORCHELASTIC_RESTART_COUNT", "7"},
                                                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                                       {"LOCAL_RANK", "0"}}));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_EQ(info->run_id, "prterun-node-34@1");
  EXPECT_EQ(info->restart_count, 0);
  EXPECT_FALSE(info->use_agent_store);
}

// ---- Slurm ----

TEST(SlurmTest, AStepsValuesWinOverTheJobs) {
  const Variables both = With(testing::kSrunTwoNodesLast, {{"SLURM_NTASKS", "64"},
                                                           {"SLURM_NPROCS", "64"},
                                                           {"SLURM_TASKS_PER_NODE", "16(x4)"},
                                                           {"SLURM_JOB_NODELIST", "job[1-4]"},
                                                           {"SLURM_NODELIST", "job[1-4]"}});
  EXPECT_EQ(Summary(Parse(both)), "2/3 0/1 n01:20776");
}

TEST(SlurmTest, WhatAnOldVersionDoesNotSetForAStepIsTakenFromTheJob) {
  Variables old = FromRecording(testing::kSrunTwoNodesLast);
  std::erase_if(old, [](const auto& variable) {
    return variable.first.starts_with("SLURM_STEP_") || variable.first == "SLURM_JOB_ID";
  });
  EXPECT_EQ(Summary(Parse(old)), "2/3 0/1 n01:20776");
}

struct Step {
  const char* tasks_per_node;
  const char* node_list;
  int node;
  int local_rank;
  int rank;
  const char* summary;
};
void PrintTo(const Step& step, std::ostream* out) { *out << step.tasks_per_node << " on " << step.node_list; }

class StepTest : public ::testing::TestWithParam<Step> {};
INSTANTIATE_TEST_SUITE_P(Steps, StepTest,
                         ::testing::Values(Step{"2(x3),1", "n[01-03,7]", 0, 1, 1, "1/7 1/2 n01:29700"},
                                           Step{"2(x3),1", "n[01-03,7]", 2, 0, 4, "4/7 0/2 n01:29700"},
                                           Step{"2(x3),1", "n[01-03,7]", 3, 0, 6, "6/7 0/1 n01:29700"},
                                           Step{"1(x2)", "n[7-8]", 1, 0, 1, "1/2 0/1 n7:29700"},
                                           Step{"1(x2)", "login,n[01-64]", 0, 0, 0, "0/2 0/1 login:29700"},
                                           Step{"8(x1)", "n1", 0, 7, 7, "7/8 7/8 127.0.0.1:29700"},
                                           Step{"4", "n1", 0, 3, 3, "3/4 3/4 127.0.0.1:29700"},
                                           Step{"1", "n1", 0, 0, 0, "0/1 0/1"}));

// The number of tasks is not always set.
TEST_P(StepTest, IsUnderstoodWithAndWithoutANumberOfTasks) {
  const Step& step = GetParam();
  Variables variables = {{"SLURM_JOB_ID", "100"},
                         {"SLURM_STEP_ID", "0"},
                         {"SLURM_PROCID", absl::StrCat(step.rank)},
                         {"SLURM_LOCALID", absl::StrCat(step.local_rank)},
                         {"SLURM_NODEID", absl::StrCat(step.node)},
                         {"SLURM_STEP_NODELIST", step.node_list},
                         {"SLURM_STEP_TASKS_PER_NODE", step.tasks_per_node}};
  EXPECT_EQ(Summary(Parse(variables)), step.summary);
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}) {
    Variables more = variables;
    more[name] = absl::StrCat(Parse(variables).value_or(RankInfo()).world_size);
    EXPECT_EQ(Summary(Parse(more)), step.summary) << name;
  }
}

TEST(SlurmTest, AProgramStartedByHandInAnAllocationIsAWorldOfOne) {
  for (const std::string_view by_hand : {testing::kBatchScript, testing::kBatchScript26, testing::kSalloc}) {
    EXPECT_EQ(Summary(Parse(FromRecording(by_hand))), "0/1 0/1");
    // A batch script sets these for the steps that it starts.
    EXPECT_EQ(Summary(Parse(With(by_hand, {{"MASTER_ADDR", "n01"}, {"MASTER_PORT", "29500"}}))), "0/1 0/1");
  }
  for (const char* step :
       {"4294967291", "4294967290", "4294967292", "4294967294", "4294967295", "4294967280", "-5", "-6", "-1", "-16"}) {
    EXPECT_EQ(Summary(Parse(With(testing::kSrunTwoNodesLast, {{"SLURM_STEP_ID", step}}))), "0/1 0/1") << step;
  }
  EXPECT_EQ(Summary(Parse(With(testing::kSrunTwoNodesLast, {{"SLURM_STEP_ID", "4294967279"}}))), "2/3 0/1 n01:28055")
      << "the last number of a step of srun";
}

TEST(SlurmTest, AShellThatIsAStepHasAsManyTasksAsTheStep) {
  const Variables shell = With(testing::kSrunOneNode, {{"SLURM_STEP_NUM_TASKS", "1"},
                                                       {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                                       {"SLURM_NTASKS", "8"},
                                                       {"SLURM_PROCID", "0"},
                                                       {"SLURM_LOCALID", "0"}});
  EXPECT_EQ(Summary(Parse(shell)), "0/1 0/1");
}

TEST(SlurmTest, ARequeuedJobHasARestartCount) {
  const absl::StatusOr<RankInfo> info = Parse(With(testing::kSrunTwoNodesLast, {{"SLURM_RESTART_COUNT", "3"}}));
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->restart_count, 3);
  EXPECT_EQ(info->master_derived_from, "Slurm");
}

TEST(SlurmTest, StepsAndJobsOfOneMachineDeriveDifferentPorts) {
  const auto port = [](const char* job, const char* step) {
    return Parse(With(testing::kSrunTwoNodesLast, {{"SLURM_JOB_ID", job}, {"SLURM_STEP_ID", step}}))
        .value_or(RankInfo())
        .master_port;
  };
  EXPECT_EQ(port("8", "0"), 20776);
  EXPECT_EQ(port("8", "96"), 20872);
  EXPECT_EQ(port("9", "0"), 20873);
  EXPECT_EQ(port("4294967295", "4294967279"), 20000 + (97 * int64_t{4294967295} + 4294967279) % 10000);
}

TEST(SlurmTest, RankZeroMustBeOnTheFirstNodeUnlessTheMasterIsGiven) {
  const Variables elsewhere = With(testing::kSrunTwoNodesFirst, {{"SLURM_NODEID", "1"}, {"SLURM_LOCALID", "0"}});
  EXPECT_THAT(Parse(elsewhere), Refuses({"SLURM_NODEID=\"1\"", "0 for rank 0", "MASTER_ADDR"}));
  Variables given = elsewhere;
  given["MASTER_ADDR"] = "n02";
  EXPECT_EQ(Summary(Parse(given)), "0/3 0/1 n02:20776");
}

TEST(SlurmTest, WhatWouldBeDerivedFromIsNotLookedAtWhereTheMasterIsGiven) {
  const Variables given = {{"MASTER_ADDR", "a"}, {"SLURM_STEP_NODELIST", "b{1..4}"}};
  EXPECT_EQ(Summary(Parse(With(testing::kSrunTwoNodesLast, given))), "2/3 0/1 a:20776");
}

TEST(SlurmTest, WithoutANodeNumberTheNodesMustBeAlike) {
  EXPECT_EQ(Summary(Parse(
                With(testing::kSrunTwoNodesLast,
                     {{"SLURM_NODEID", ""}, {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}, {"SLURM_STEP_NUM_TASKS", "4"}}))),
            "2/4 0/2 n01:20776");
  EXPECT_THAT(Parse(With(testing::kSrunTwoNodesLast, {{"SLURM_NODEID", ""}})), Refuses({"lacks SLURM_NODEID"}));
}

// ---- What is wrong ----

struct Wrong {
  std::string_view recording;
  const char* name;
  const char* value;
  std::vector<std::string> words;
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.name << "=" << wrong.value; }

class WrongValueTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongValueTest, IsAnErrorThatNamesVariableAndValueAndWhatIsAllowed) {
  const Wrong& wrong = GetParam();
  const absl::StatusOr<RankInfo> info = Parse(With(wrong.recording, {{wrong.name, wrong.value}}));
  EXPECT_THAT(info, Refuses(wrong.words)) << Summary(info);
  EXPECT_THAT(info,
              Refuses({absl::StrCat(wrong.name, "=\"", std::string_view(wrong.value).substr(0, 100)), "allowed is "}));
}

constexpr std::string_view kS = testing::kSrunTwoNodesLast;
constexpr std::string_view kM = testing::kMpirun5;
INSTANTIATE_TEST_SUITE_P(
    Slurm, WrongValueTest,
    ::testing::Values(Wrong{kS, "SLURM_PROCID", "3", {"an integer from 0 to 2"}},
                      Wrong{kS, "SLURM_PROCID", "-1", {"an integer from 0 to 2"}},
                      Wrong{kS, "SLURM_PROCID", "two", {"an integer from 0 to 2"}},
                      Wrong{kS, "SLURM_LOCALID", "1", {"only 0"}},
                      Wrong{kS, "SLURM_NODEID", "2", {"an integer from 0 to 1"}},
                      Wrong{kS, "SLURM_STEP_NUM_TASKS", "4", {"3, because SLURM_STEP_TASKS_PER_NODE=\"2,1\""}},
                      Wrong{kS, "SLURM_STEP_NUM_TASKS", "0", {"an integer from 1 to 1048576"}},
                      Wrong{kS, "SLURM_STEP_NUM_TASKS", "2000000000", {"an integer from 1 to 1048576"}},
                      Wrong{kS, "SLURM_STEP_TASKS_PER_NODE", "2(y3)", {"2(x3),1"}},
                      Wrong{kS, "SLURM_STEP_TASKS_PER_NODE", "1(x999999999)", {"at most 1048576 tasks"}},
                      Wrong{kS, "SLURM_STEP_TASKS_PER_NODE", "999999999999999999", {"at most 1048576 tasks"}},
                      Wrong{kS, "SLURM_STEP_NODELIST", "n[1-3", {"n[01-03,7]"}},
                      Wrong{kS, "SLURM_STEP_NODELIST", "n[0-4294967295]", {"at most 1048576"}},
                      Wrong{kS, "SLURM_STEP_NODELIST", "n{1..3}", {"n[01-03,7]"}},
                      Wrong{kS, "SLURM_STEP_NODELIST", "(null)", {"n[01-03,7]"}},
                      Wrong{kS, "SLURM_STEP_ID", "x", {"the number of a step"}},
                      Wrong{kS, "SLURM_STEP_ID", "-17", {"the number of a step"}},
                      Wrong{kS, "SLURM_STEP_ID", "4294967296", {"the number of a step"}},
                      Wrong{kS, "SLURM_STEP_ID", "0.0", {"the number of a step"}},
                      Wrong{kS, "SLURM_JOB_ID", "8_1", {"an integer from 0 to 4294967295"}},
                      Wrong{kS, "SLURM_RESTART_COUNT", "-1", {"an integer from 0 to 1000000000"}}));
INSTANTIATE_TEST_SUITE_P(OpenMpi, WrongValueTest,
                         ::testing::Values(Wrong{kM, "OMPI_COMM_WORLD_RANK", "2", {"an integer from 0 to 1"}},
                                           Wrong{kM, "OMPI_COMM_WORLD_SIZE", "x", {"an integer from 1 to 1048576"}},
                                           Wrong{kM, "OMPI_COMM_WORLD_LOCAL_RANK", "2", {"an integer from 0 to 1"}},
                                           Wrong{kM, "OMPI_COMM_WORLD_LOCAL_SIZE", "3", {"an integer from 1 to 2"}}));

class MissingTest : public ::testing::TestWithParam<std::pair<std::string_view, const char*>> {};
INSTANTIATE_TEST_SUITE_P(Slurm, MissingTest,
                         ::testing::Values(std::pair(kS, "SLURM_PROCID"), std::pair(kS, "SLURM_LOCALID")));
INSTANTIATE_TEST_SUITE_P(OpenMpi, MissingTest,
                         ::testing::Values(std::pair(kM, "OMPI_COMM_WORLD_RANK"), std::pair(kM, "OMPI_COMM_WORLD_SIZE"),
                                           std::pair(kM, "OMPI_COMM_WORLD_LOCAL_RANK"),
                                           std::pair(kM, "OMPI_COMM_WORLD_LOCAL_SIZE")));

TEST_P(MissingTest, IsAnErrorThatNamesWhatIsMissing) {
  const auto& [recording, name] = GetParam();
  EXPECT_THAT(Parse(With(recording, {{name, ""}})), Refuses({absl::StrCat("lacks ", name, ":")}));
}

TEST(SlurmTest, AStepWithoutItsJobOrItsTasksIsAnErrorThatNamesThem) {
  EXPECT_THAT(Parse(With(kS, {{"SLURM_JOB_ID", ""}, {"SLURM_JOBID", ""}})), Refuses({"lacks SLURM_JOB_ID:"}));
  EXPECT_THAT(Parse(With(kS, {{"SLURM_STEP_TASKS_PER_NODE", ""}, {"SLURM_TASKS_PER_NODE", ""}})),
              Refuses({"lacks SLURM_STEP_TASKS_PER_NODE:"}));
}

TEST(HostileTest, AHugeListIsShownInPartAndKeptOutOfTheMemory) {
  std::string list = "n[0";
  for (int i = 1; i < 10000; ++i) absl::StrAppend(&list, ",", i, "-4294967295");
  const absl::StatusOr<RankInfo> info = Parse(With(kS, {{"SLURM_STEP_NODELIST", list + "]"}}));
  EXPECT_THAT(info, Refuses({"SLURM_STEP_NODELIST=\"n[0,1-4294967295,", "...\""}));
  EXPECT_LT(info.status().message().size(), 1000u);
}

// ---- PMIx and PMI ----

TEST(PmixTest, ANumberWithoutAWorldIsAnErrorAndNoWorldOfOne) {
  EXPECT_THAT(Parse(FromRecording(testing::kPrterun)),
              Refuses({"lacks RANK and WORLD_SIZE and MASTER_ADDR and MASTER_PORT", "PMIX_RANK=\"1\"", "how many"}));
  EXPECT_THAT(Parse({{"PMIX_RANK", "0"}}), Refuses({"PMIX_RANK=\"0\""}));
  EXPECT_EQ(Summary(Parse(With(testing::kPrterun, FromRecording(kTorchrun)))), "5/8 1/4 10.0.0.1:29500");
}

// MPICH's and Intel's.
TEST(PmixTest, PmiAloneIsAnErrorUnlessThereIsOneProcess) {
  EXPECT_THAT(Parse({{"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}), Refuses({"PMI_RANK=\"1\"", "lacks RANK"}));
  EXPECT_EQ(Summary(Parse({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}})), "0/1 0/1");
}

// ---- ExplainRankInfo ----

std::string Explain(const Variables& variables) { return ExplainRankInfo(In(variables)); }

TEST(ExplainTest, SaysWhichLauncherAndHowTheMasterCameAbout) {
  EXPECT_THAT(Explain(With(kS, {{"LOCAL_RANK", "7"}, {"SLURM_NTASKS", "64"}})),
              AllOf(HasSubstr("launcher  Slurm\n"), HasSubstr("rank      2 of 3; on this machine 0 of 1\n"),
                    HasSubstr("meets at  n01:20776\n"),
                    HasSubstr("MASTER_ADDR was not: it is the first node of SLURM_STEP_NODELIST\n"),
                    HasSubstr("MASTER_PORT was not: it is 20000 + (97 * SLURM_JOB_ID + SLURM_STEP_ID) % 10000\n"),
                    HasSubstr("run       slurm-8.0, restart 0\n")));
}

TEST(ExplainTest, SaysWhatWasReadAndWhatWasNot) {
  const std::string text = Explain(With(kS, {{"LOCAL_RANK", "7"}, {"SLURM_NTASKS", "64"}, {"MASTER_PORT", "5"}}));
  const size_t not_read = text.find("not read  ");
  ASSERT_NE(not_read, std::string::npos);
  for (const char* line : {"SLURM_STEP_NODELIST=\"n[01-02]\"\n", "SLURM_PROCID=\"2\"\n", "MASTER_PORT=\"5\"\n"}) {
    EXPECT_LT(text.find(line), not_read) << line << text;
  }
  for (const char* line : {"SLURM_NTASKS=\"64\"\n", "LOCAL_RANK=\"7\"\n"}) {
    EXPECT_GT(text.find(line), not_read) << line << text;
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_THAT(text, HasSubstr("MASTER_PORT was given\n"));
  EXPECT_THAT(text, Not(HasSubstr("SLURM_CLUSTER_NAME"))) << "which nobody reads";
}

TEST(ExplainTest, SaysWhyThereIsNoLauncher) {
  EXPECT_THAT(Explain({}), AllOf(HasSubstr("launcher  none: no variable of one is there\n"),
                                 HasSubstr("a world of one\n"), Not(HasSubstr("read "))));
  EXPECT_THAT(Explain(With(testing::kBatchScript, {{"MASTER_ADDR", "n01"}})),
              AllOf(HasSubstr("launcher  none: started by hand inside an allocation of Slurm's, and not by srun\n"),
                    HasSubstr("not read  MASTER_ADDR=\"n01\"\n")));
}

TEST(ExplainTest, ShowsAnErrorWithWhatWasReadAndEscapesIt) {
  EXPECT_THAT(
      Explain({{"RANK", "1\n\x1b[31m"}, {"WORLD_SIZE", "1"}}),
      AllOf(HasSubstr("launcher  torchrun\n"), HasSubstr("error     environment variable RANK=\"1\\n\\x1b[31m\""),
            HasSubstr("          WORLD_SIZE=\"1\"\n"), Not(HasSubstr("\x1b"))));
}

TEST(ExplainTest, NamesTheStoreOfAnAgentAndAnAddressWithColons) {
  EXPECT_THAT(Explain(With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"MASTER_ADDR", "::1"}})),
              AllOf(HasSubstr("meets at  [::1]:29500\n"), HasSubstr("the store of torchrun's agent is there\n"),
                    HasSubstr("MASTER_ADDR was given\n")));
}

TEST(ExplainTest, IsShortWhateverTheValuesAre) {
  EXPECT_LT(Explain(With(kTorchrun, {{"SLURM_STEP_NODELIST", std::string(100000, 'n')}})).size(), 1500u);
}

}  // namespace
}  // namespace cohort
