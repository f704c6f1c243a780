// What happens when real processes meet, and when one of them dies, freezes, comes late or not at all. Every rank
// follows a script (testing/rank_script_main.cc) and reports every step.

#include "cohort/runtime/init_process_group.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cohort/runtime/testing/scripted_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::cohort::testing::AwaitThat;
using ::cohort::testing::GiveSign;
using ::cohort::testing::NewPath;
using ::cohort::testing::ReadFile;
using ::cohort::testing::Runfile;
using ::cohort::testing::ScriptedJob;
using ::cohort::testing::ScriptedRank;
using ::cohort::testing::StepReport;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using Reports = std::vector<StepReport>;
using Environment = ScriptedRank::Environment;

MATCHER(Succeeds, "") { return arg.code == "OK"; }

MATCHER_P2(FailsWith, code, text, "") {
  return arg.code == code && ::testing::Matches(::testing::SafeMatcherCast<std::string>(text))(arg.text);
}

// Starts ranks 0, 1, ... with the same steps.
std::vector<ScriptedRank> StartAll(ScriptedJob& job, int num_ranks, const std::vector<std::string>& steps,
                                   const Environment& changes = {}) {
  std::vector<ScriptedRank> ranks;
  for (int rank = 0; rank < num_ranks; ++rank) ranks.push_back(job.Start(rank, steps, changes));
  return ranks;
}

// The rank ended with exit code 0, and wrote nothing to stderr.
Reports AwaitQuietEnd(ScriptedRank& rank) {
  Reports reports = rank.AwaitEnd();
  EXPECT_EQ(rank.exit_code(), 0);
  EXPECT_EQ(rank.Errors(), "");
  return reports;
}

void ExpectSuccess(std::vector<ScriptedRank>& ranks) {
  for (ScriptedRank& rank : ranks) EXPECT_THAT(AwaitQuietEnd(rank), Each(Succeeds()));
}

// The last step of every rank fails in this way.
template <typename Text>
void ExpectFailure(std::vector<ScriptedRank>& ranks, const std::string& code, Text text) {
  for (ScriptedRank& rank : ranks) {
    const Reports reports = AwaitQuietEnd(rank);
    ASSERT_FALSE(reports.empty());
    EXPECT_THAT(reports.back(), FailsWith(code, text));
  }
}

// ---- Meeting ----

class WorldSizeTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, WorldSizeTest, ::testing::Values(2, 4));

TEST_P(WorldSizeTest, RanksMeetAndKnowThemselves) {
  const int world_size = GetParam();
  ScriptedJob job(world_size);
  std::vector<ScriptedRank> ranks =
      StartAll(job, world_size, {"init=gloo", "identity", "barrier", "agree=x", "shutdown"});
  ExpectSuccess(ranks);
  for (int rank = 0; rank < world_size; ++rank) {
    EXPECT_EQ(ranks[rank].Reports()[1].text, absl::StrCat(rank, " ", world_size, " ", rank, " ", world_size, " gloo"));
  }
}

TEST(MeetingTest, AWorldOfOneNeedsNoNetwork) {
  ScriptedJob job(1);
  const std::string log = NewPath("calls");
  const Environment shim = {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")}, {"NETWORK_SHIM_LOG", log}};
  std::vector<ScriptedRank> ranks = StartAll(job, 1, {"init=auto", "identity", "barrier", "sum=3", "shutdown"}, shim);
  ExpectSuccess(ranks);
  EXPECT_EQ(ranks[0].Reports()[1].text, "0 1 0 1 none");
  EXPECT_EQ(ReadFile(log), "");
}

TEST(MeetingTest, AProcessMayFormOneGroupAfterAnother) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks =
      StartAll(job, 2, {"init=gloo", "barrier", "shutdown", "destroy", "init=gloo", "barrier", "shutdown"});
  ExpectSuccess(ranks);
}

TEST(MeetingTest, EveryRankListsTheRankThatDidNotCome) {
  ScriptedJob job(3);
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"meet_for=2", "init=gloo"});
  ExpectFailure(ranks, "DEADLINE_EXCEEDED",
                AllOf(HasSubstr("missing: rank 2"), HasSubstr("world size 3"), HasSubstr("MASTER_ADDR=127.0.0.1"),
                      HasSubstr(absl::StrCat("MASTER_PORT=", job.port()))));
}

TEST(MeetingTest, OfSeveralMachinesEveryRankSaysThatALoopbackMasterLeadsEachToItself) {
  const Environment two_machines = {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}};
  ScriptedJob job(3);
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"meet_for=2", "init=gloo"}, two_machines);
  ExpectFailure(ranks, "DEADLINE_EXCEEDED", AllOf(HasSubstr("missing: rank 2"), HasSubstr("127.0.0.1 is loopback")));

  ScriptedJob without_main(3);
  std::vector<ScriptedRank> others;
  for (int rank : {1, 2}) others.push_back(without_main.Start(rank, {"meet_for=2", "init=gloo"}, two_machines));
  ExpectFailure(others, "DEADLINE_EXCEEDED", AllOf(HasSubstr("missing: rank 0"), HasSubstr("127.0.0.1 is loopback")));
}

TEST(MeetingTest, ManyMachinesOnOneMeetAtLoopback) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks =
      StartAll(job, 2, {"init=gloo", "barrier", "shutdown"}, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}});
  ExpectSuccess(ranks);
}

TEST(MeetingTest, EveryRankSaysThatRank0DidNotCome) {
  ScriptedJob job(3);
  std::vector<ScriptedRank> ranks;
  for (int rank : {1, 2}) ranks.push_back(job.Start(rank, {"meet_for=2", "init=gloo"}));
  ExpectFailure(ranks, "DEADLINE_EXCEEDED",
                AllOf(HasSubstr("missing: rank 0"), HasSubstr("world size 3"), HasSubstr("MASTER_ADDR=127.0.0.1"),
                      HasSubstr(absl::StrCat("MASTER_PORT=", job.port()))));
}

TEST(MeetingTest, ALateRankIsWaitedFor) {
  ScriptedJob job(3);
  const std::string sign = NewPath("sign");
  ScriptedRank late = job.Start(2, {absl::StrCat("await=", sign), "init=gloo", "barrier", "shutdown"});
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"wait_for=60", "init=gloo", "barrier", "shutdown"});
  for (ScriptedRank& rank : ranks) EXPECT_EQ(rank.AwaitSteps(1).size(), 1u) << "it met without the late rank";
  GiveSign(sign);
  ranks.push_back(std::move(late));
  ExpectSuccess(ranks);
}

TEST(MeetingTest, ARankNumberUsedTwiceIsAnErrorOnTheSecond) {
  ScriptedJob job(3);
  const std::string sign = NewPath("sign");
  std::vector<ScriptedRank> main = StartAll(job, 1, {"init=gloo", "barrier", "shutdown"});
  std::vector<ScriptedRank> rivals;
  for (int i = 0; i < 2; ++i) rivals.push_back(job.Start(1, {"init=gloo", "barrier", "shutdown"}));
  // Rank 2 is missing, so the first report is that of the rival who came second.
  AwaitThat([&] { return !rivals[0].Reports().empty() || !rivals[1].Reports().empty(); });
  const int refused = rivals[0].Reports().empty() ? 1 : 0;
  EXPECT_THAT(rivals[refused].Reports()[0], FailsWith("INVALID_ARGUMENT", HasSubstr("rank 1")));
  ScriptedRank last = job.Start(2, {"init=gloo", "barrier", "shutdown"});
  for (ScriptedRank* rank : {&main[0], &rivals[1 - refused], &last})
    EXPECT_THAT(AwaitQuietEnd(*rank), Each(Succeeds()));
}

TEST(MeetingTest, APortInUseIsAnErrorThatNamesIt) {
  ScriptedJob job(2);
  const int on = 1;
  const int squatter = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(job.port()), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  ASSERT_EQ(setsockopt(squatter, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  ASSERT_EQ(bind(squatter, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(squatter, 1), 0);
  std::vector<ScriptedRank> ranks = StartAll(job, 1, {"init=gloo"});
  ExpectFailure(ranks, "ALREADY_EXISTS", AllOf(HasSubstr(absl::StrCat("127.0.0.1:", job.port())), HasSubstr("in use"),
                                        HasSubstr("MASTER_PORT, or the launcher's --master-port, chooses another")));
  close(squatter);
}

// ---- Bad input ----

struct BadInput {
  std::string backend;
  Environment changes;
  std::vector<std::string> words;
};

TEST(BadInputTest, IsRefusedBeforeAnySocketIsOpened) {
  const std::vector<BadInput> inputs = {
      {"gloo", {{"RANK", "two"}}, {"RANK", "two"}},
      {"gloo", {{"RANK", "2"}}, {"RANK", "2"}},
      {"gloo", {{"MASTER_PORT", "65536"}}, {"MASTER_PORT", "65536"}},
      {"gloo", {{"MASTER_ADDR", ""}}, {"MASTER_ADDR"}},
      {"gloo", {{"GLOO_SOCKET_IFNAME", "eth77"}}, {"GLOO_SOCKET_IFNAME=eth77", "this machine has: lo 127.0.0.1"}},
      {"gloo", {{"GLOO_SOCKET_IFNAME", "lo,"}}, {"GLOO_SOCKET_IFNAME=lo,", "\"\"", "this machine has: lo 127.0.0.1"}},
      {"gloo", {{"GLOO_SOCKET_IFNAME", "127.0.0.1"}}, {"no network interface \"127.0.0.1\"", "lo 127.0.0.1"}},
      {"mpi", {}, {"\"mpi\"", "auto", "gloo", "nccl"}},
  };
  for (const BadInput& input : inputs) {
    ScriptedJob job(2);
    const std::string log = NewPath("calls");
    Environment changes = input.changes;
    changes.insert({{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")}, {"NETWORK_SHIM_LOG", log}});
    ScriptedRank rank = job.Start(0, {"init=" + input.backend}, changes);
    const Reports reports = AwaitQuietEnd(rank);
    ASSERT_EQ(reports.size(), 1u);
    for (const std::string& word : input.words) EXPECT_THAT(reports[0], FailsWith("INVALID_ARGUMENT", HasSubstr(word)));
    EXPECT_EQ(ReadFile(log), "");
  }
}

// The detector above detects.
TEST(BadInputTest, GoodInputOpensSocketsAndTheShimSeesIt) {
  ScriptedJob job(2);
  const std::string log = NewPath("calls");
  std::vector<ScriptedRank> ranks =
      StartAll(job, 2, {"init=gloo", "shutdown"},
               {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")}, {"NETWORK_SHIM_LOG", log}});
  ExpectSuccess(ranks);
  EXPECT_THAT(ReadFile(log), HasSubstr("socket IPv4\n"));
}

TEST(BadInputTest, ATimeoutOfNothingIsRefused) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks = StartAll(job, 1, {"meet_for=0", "init=gloo"});
  ExpectFailure(ranks, "INVALID_ARGUMENT", HasSubstr("more than zero"));
}

// ---- Choosing the backend; there is no GPU in a test ----

TEST(BackendTest, NcclWithoutAGpuIsTheSameErrorOnAllRanks) {
  for (const auto& [value, shown] :
       {std::pair("", "CUDA_VISIBLE_DEVICES is not set"), std::pair("0,1", "CUDA_VISIBLE_DEVICES=\"0,1\"")}) {
    ScriptedJob job(2);
    std::vector<ScriptedRank> ranks = StartAll(job, 2, {"init=nccl"}, {{"CUDA_VISIBLE_DEVICES", value}});
    ExpectFailure(ranks, "FAILED_PRECONDITION",
                  AllOf(HasSubstr("rank 0 cannot use nccl"), HasSubstr("no visible GPU"), HasSubstr(shown)));
    EXPECT_EQ(ranks[0].Reports()[0].text, ranks[1].Reports()[0].text);
  }
}

TEST(BackendTest, NcclWithoutAGpuIsAnErrorInAWorldOfOneToo) {
  ScriptedJob job(1);
  std::vector<ScriptedRank> ranks = StartAll(job, 1, {"init=nccl"});
  ExpectFailure(ranks, "FAILED_PRECONDITION", HasSubstr("no visible GPU"));
}

TEST(BackendTest, AutoBecomesGlooAndOnlyTheMainRankSaysWhy) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"init=auto", "identity", "barrier", "shutdown"});
  for (ScriptedRank& rank : ranks) EXPECT_THAT(rank.AwaitEnd(), Each(Succeeds()));
  for (ScriptedRank& rank : ranks) EXPECT_THAT(rank.Reports()[1].text, ::testing::EndsWith("gloo"));
  const std::vector<std::string> lines = absl::StrSplit(ranks[0].Errors(), '\n');
  EXPECT_EQ(lines.size(), 2u) << "one line and what follows it: nothing";
  EXPECT_THAT(lines[0],
              AllOf(StartsWith("cohort: "), HasSubstr("rank 0 cannot use nccl"), HasSubstr("no visible GPU")));
  EXPECT_EQ(ranks[1].Errors(), "");
}

TEST(BackendTest, GlooNeedsNoLocalRank) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks =
      StartAll(job, 2, {"init=gloo", "identity", "shutdown"}, {{"LOCAL_RANK", ""}, {"LOCAL_WORLD_SIZE", ""}});
  ExpectSuccess(ranks);
}

// ---- Addresses ----

class AddressTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Loopback, AddressTest,
                         ::testing::Values("127.0.0.1", "localhost", "::1", "[::1]", "127.0.0.2"));

TEST_P(AddressTest, RanksMeetThere) {
  ScriptedJob job(2, GetParam());
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"init=gloo", "barrier", "sum=3", "shutdown"});
  ExpectSuccess(ranks);
}

struct FamilyCase {
  const char* without;
  const char* master_addr;
  bool works;
};

class OneFamilyTest : public ::testing::TestWithParam<FamilyCase> {};
INSTANTIATE_TEST_SUITE_P(Loopback, OneFamilyTest,
                         ::testing::Values(FamilyCase{"IPv6", "127.0.0.1", true}, FamilyCase{"IPv6", "localhost", true},
                                           FamilyCase{"IPv6", "::1", false}, FamilyCase{"IPv4", "::1", true},
                                           FamilyCase{"IPv4", "[::1]", true}, FamilyCase{"IPv4", "127.0.0.1", false}));

TEST_P(OneFamilyTest, RanksMeetThereOrSayAtOnceThatThereIsNoSuchAddress) {
  ScriptedJob job(2, GetParam().master_addr);
  const Environment shim = {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")},
                            {"NETWORK_SHIM_WITHOUT", GetParam().without}};
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"init=gloo", "barrier", "shutdown"}, shim);
  if (GetParam().works) {
    ExpectSuccess(ranks);
    return;
  }
  for (ScriptedRank& rank : ranks) {
    const Reports reports = AwaitQuietEnd(rank);
    ASSERT_FALSE(reports.empty());
    EXPECT_THAT(reports[0],
                FailsWith("INVALID_ARGUMENT", AllOf(HasSubstr("no such address"), HasSubstr(GetParam().master_addr))));
  }
}

TEST(AddressTest, TheInterfaceCanBeChosen) {
  ScriptedJob job(2, "::1");
  std::vector<ScriptedRank> ranks =
      StartAll(job, 2, {"init=gloo", "barrier", "shutdown"}, {{"GLOO_SOCKET_IFNAME", "lo"}});
  ExpectSuccess(ranks);
}

TEST(AddressTest, TheMachinesOwnNameNeedNotLeadAnywhere) {
  ScriptedJob job(2);
  const std::string log = NewPath("calls");
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"init=gloo", "barrier", "shutdown"},
                                             {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")},
                                              {"NETWORK_SHIM_LOG", log},
                                              {"NETWORK_SHIM_HOSTNAME", "made-up.invalid"}});
  ExpectSuccess(ranks);
  // The shim is in the way, and no name was looked up: only numbers.
  EXPECT_THAT(ReadFile(log), HasSubstr("gethostname made-up.invalid\n"));
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(ReadFile(log), '\n', absl::SkipEmpty()))) {
    if (line.starts_with("getaddrinfo")) {
      EXPECT_EQ(line, "getaddrinfo 127.0.0.1");
    }
  }
}

TEST(AddressTest, ANameIsLookedUpByTheSystemsResolver) {
  ScriptedJob job(2, "node.test");
  std::vector<ScriptedRank> ranks = StartAll(
      job, 2, {"init=gloo", "barrier", "shutdown"},
      {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")}, {"NETWORK_SHIM_ADDRESS", "node.test=127.0.0.1"}});
  ExpectSuccess(ranks);
}

// All ranks are on this machine, so the main rank can tell. (Nothing is ever sent to an address that begins with 0.)
TEST(AddressTest, ANameThatLeadsElsewhereIsAnErrorOnTheMainRankThatSaysWhatThereIs) {
  ScriptedJob job(2, "node.test");
  std::vector<ScriptedRank> ranks = StartAll(
      job, 1, {"init=gloo"},
      {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")}, {"NETWORK_SHIM_ADDRESS", "node.test=0.0.0.1"}});
  ExpectFailure(ranks, "INVALID_ARGUMENT",
                AllOf(HasSubstr("MASTER_ADDR=node.test"), HasSubstr("0.0.0.1"), HasSubstr("lo 127.0.0.1")));
  EXPECT_LT(ranks[0].Reports()[0].took, absl::Seconds(30)) << "it waited for the others";
}

TEST(AddressTest, AnAddressThatIsNotOfOneMachineIsAnErrorOnAllRanks) {
  ScriptedJob job(2, "0.0.0.0");
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"init=gloo"});
  ExpectFailure(ranks, "INVALID_ARGUMENT", AllOf(HasSubstr("MASTER_ADDR=0.0.0.0"), HasSubstr("127.0.0.1")));
}

// ---- Other launchers: what they set is the business of launcher_environments_test ----

const Environment kNothingOfTorchrun = {{"RANK", ""},        {"WORLD_SIZE", ""},
                                        {"LOCAL_RANK", ""},  {"LOCAL_WORLD_SIZE", ""},
                                        {"MASTER_ADDR", ""}, {"MASTER_PORT", ""}};

// Every rank finds the same place, and finds it free: the network of the test is its own.
void ExpectToMeet(const std::vector<Environment>& environments) {
  ScriptedJob job(static_cast<int>(environments.size()));
  std::vector<ScriptedRank> ranks;
  for (size_t rank = 0; rank < environments.size(); ++rank) {
    Environment changes = environments[rank];
    changes.insert(kNothingOfTorchrun.begin(), kNothingOfTorchrun.end());
    ranks.push_back(
        job.Start(static_cast<int>(rank), {"init=gloo", "identity", "barrier", "sum=3", "shutdown"}, changes));
  }
  ExpectSuccess(ranks);
  for (size_t rank = 0; rank < environments.size(); ++rank) {
    EXPECT_EQ(ranks[rank].Reports()[1].text, absl::StrCat(rank, " 2 ", rank, " 2 gloo"));
  }
}

TEST(LauncherTest, RanksOfASlurmStepMeet) {
  const Environment step = {{"SLURM_JOB_ID", "4711"},           {"SLURM_STEP_ID", "2"},
                            {"SLURM_STEP_NUM_TASKS", "2"},      {"SLURM_NODEID", "0"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2"}, {"SLURM_STEP_NODELIST", "n01"}};
  std::vector<Environment> ranks(2, step);
  for (int rank : {0, 1}) ranks[rank]["SLURM_PROCID"] = ranks[rank]["SLURM_LOCALID"] = absl::StrCat(rank);
  ExpectToMeet(ranks);
}

TEST(LauncherTest, RanksOfAnMpirunMeet) {
  const Environment job = {
      {"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"PMIX_NAMESPACE", "prterun-node-28@1"}};
  std::vector<Environment> ranks(2, job);
  for (int rank : {0, 1}) {
    ranks[rank]["OMPI_COMM_WORLD_RANK"] = ranks[rank]["OMPI_COMM_WORLD_LOCAL_RANK"] = absl::StrCat(rank);
  }
  ExpectToMeet(ranks);
}

TEST(AddressTest, ANameWithoutAnAddressIsAnErrorOnEveryRankLongBeforeTheDeadline) {
  ScriptedJob job(2, "no-such-host.invalid");
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"meet_for=60", "init=gloo"});
  ExpectFailure(ranks, "INVALID_ARGUMENT", HasSubstr("MASTER_ADDR=no-such-host.invalid"));
}

// ---- Death, freezing, leaving ----

TEST(FailureTest, ADeathWhileTheRanksConnectIsKnownToAll) {
  ScriptedJob job(3);
  ScriptedRank victim = job.Start(2, {"meet_and_kill"});
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"meet_for=60", "init=gloo"});
  ExpectFailure(ranks, "UNAVAILABLE", HasSubstr("rank 2"));
}

// Ranks 0 to n-1, of which the last one waits for a sign before its second barrier.
struct Suspense {
  explicit Suspense(ScriptedJob& job, int world_size, const std::vector<std::string>& after_sign,
                    const std::vector<std::string>& others_after) {
    std::vector<std::string> steps = {"init=gloo", "barrier", absl::StrCat("await=", sign)};
    steps.insert(steps.end(), after_sign.begin(), after_sign.end());
    victim.push_back(job.Start(world_size - 1, steps));
    steps = {"wait_for=60", "init=gloo", "barrier"};
    steps.insert(steps.end(), others_after.begin(), others_after.end());
    survivors = StartAll(job, world_size - 1, steps);
  }

  const std::string sign = NewPath("sign");
  std::vector<ScriptedRank> victim;
  std::vector<ScriptedRank> survivors;
};

TEST(FailureTest, EverySurvivorOfABarrierNamesTheRankThatDied) {
  ScriptedJob job(4);
  Suspense job_of_four(job, 4, {"kill"}, {"barrier", "barrier", "destroy"});
  for (ScriptedRank& rank : job_of_four.survivors) EXPECT_EQ(rank.AwaitSteps(3).size(), 3u);
  GiveSign(job_of_four.sign);
  job_of_four.victim[0].AwaitEnd();
  EXPECT_EQ(job_of_four.victim[0].exit_code(), -SIGKILL);
  for (ScriptedRank& rank : job_of_four.survivors) {
    const Reports reports = AwaitQuietEnd(rank);
    ASSERT_EQ(reports.size(), 6u);
    EXPECT_THAT(reports[3], FailsWith("UNAVAILABLE", HasSubstr("rank 3")));
    EXPECT_THAT(reports[4], FailsWith("FAILED_PRECONDITION", HasSubstr("rank 3"))) << "poisoned, and quotes why";
    EXPECT_LT(reports[5].took, absl::Seconds(30)) << "waited for the operation's timeout";
  }
}

TEST(FailureTest, EverySurvivorOfABarrierNamesTheRankThatIsFrozen) {
  ScriptedJob job(3);
  const std::string sign = NewPath("sign");
  ScriptedRank frozen = job.Start(2, {"init=gloo", "barrier", absl::StrCat("await=", sign)});
  std::vector<ScriptedRank> ranks =
      StartAll(job, 2, {"wait_for=2", "init=gloo", "barrier", absl::StrCat("await=", sign), "barrier", "destroy"});
  EXPECT_EQ(frozen.AwaitSteps(2).size(), 2u);
  kill(frozen.pid(), SIGSTOP);
  GiveSign(sign);
  for (ScriptedRank& rank : ranks) {
    const Reports reports = AwaitQuietEnd(rank);
    ASSERT_EQ(reports.size(), 6u);
    EXPECT_THAT(reports[4], FailsWith("DEADLINE_EXCEEDED",
                                      AllOf(HasSubstr("Barrier"), HasSubstr("missing: rank 2"), HasSubstr("2s"))));
  }
}

TEST(FailureTest, RanksInDifferentOperationsAreToldWhoIsWhere) {
  ScriptedJob job(3);
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"wait_for=2", "init=gloo", "barrier"});
  ranks.push_back(job.Start(2, {"wait_for=2", "init=gloo", "agree=data is loaded"}));
  ExpectFailure(ranks, "FAILED_PRECONDITION",
                AllOf(HasSubstr("ranks 0 and 1 in Barrier"), HasSubstr("rank 2 in Agree \"data is loaded\"")));
}

TEST(FailureTest, AnErrorReachesAllRanksAndLeavesTheGroupUsable) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks;
  ranks.push_back(job.Start(0, {"init=gloo", "agree=x", "barrier", "shutdown"}));
  ranks.push_back(job.Start(1, {"init=gloo", "fail=x", "barrier", "shutdown"}));
  for (ScriptedRank& rank : ranks) {
    const Reports reports = AwaitQuietEnd(rank);
    ASSERT_EQ(reports.size(), 4u);
    EXPECT_THAT(reports[1], FailsWith("DATA_LOSS", "rank 1: made to fail"));
    EXPECT_THAT(reports[2], Succeeds());
  }
}

TEST(FailureTest, OtherTensorsThanTheMainRanksAreAnErrorOnAllAndEndNoProcess) {
  ScriptedJob job(3);
  std::vector<ScriptedRank> ranks = StartAll(job, 2, {"wait_for=60", "init=gloo", "sum=5"});
  ranks.push_back(job.Start(2, {"wait_for=60", "init=gloo", "sum=700"}));
  ExpectFailure(ranks, "FAILED_PRECONDITION",
                AllOf(HasSubstr("rank 2: "), HasSubstr("Float[5]"), HasSubstr("Float[700]")));
}

TEST(FailureTest, ATensorThatCannotBeSentIsAnErrorOnAll) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks;
  ranks.push_back(job.Start(0, {"wait_for=60", "init=gloo", "sum=1"}));
  ranks.push_back(job.Start(1, {"wait_for=60", "init=gloo", "bad"}));
  ExpectFailure(ranks, "INVALID_ARGUMENT",
                AllOf(HasSubstr("rank 1: "), HasSubstr("tensor 0 is on meta and must be on cpu")));
}

// A rank that goes in the middle of a large message leaves the receiver's gloo thread waiting: nobody else may wait
// with it. The shim makes it go after 10 of 80 MB.
class HalfAMessageTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signal, HalfAMessageTest, ::testing::Values(SIGKILL, SIGSTOP));

TEST_P(HalfAMessageTest, DoesNotKeepTheReceiver) {
  ScriptedJob job(2);
  const bool is_frozen = GetParam() == SIGSTOP;
  const std::vector<std::string> steps = {is_frozen ? "wait_for=3" : "wait_for=60", "init=gloo", "broadcast=20000000",
                                          "destroy"};
  std::vector<ScriptedRank> receiver;
  receiver.push_back(job.Start(1, steps));
  ScriptedRank sender = job.Start(0, steps,
                                  {{"LD_PRELOAD", Runfile("runtime/testing/libnetwork_shim.so")},
                                   {"NETWORK_SHIM_SIGNAL", absl::StrCat(GetParam())},
                                   {"NETWORK_SHIM_SIGNAL_AFTER", "10000000"}});
  const Reports reports = AwaitQuietEnd(receiver[0]);
  ASSERT_EQ(reports.size(), 4u);
  EXPECT_THAT(reports[2], FailsWith(is_frozen ? "DEADLINE_EXCEEDED" : "UNAVAILABLE", HasSubstr("rank 0")));
  EXPECT_LT(reports[3].took, absl::Seconds(30)) << "it waited for the operation's timeout";
  EXPECT_EQ(sender.Reports().size(), 2u) << "the broadcast ended";
}

class LeavingTest : public ::testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(FirstAndHow, LeavingTest,
                         ::testing::Values(std::tuple(0, "shutdown"), std::tuple(0, "destroy"), std::tuple(0, "forget"),
                                           std::tuple(0, "exit"), std::tuple(1, "forget"), std::tuple(3, "shutdown"),
                                           std::tuple(3, "destroy"), std::tuple(3, "exit")));

TEST_P(LeavingTest, TheRankThatLeavesFirstMakesNoNoiseOnTheOthers) {
  const auto [first, how] = GetParam();
  ScriptedJob job(4);
  const std::string sign = NewPath("sign");
  std::vector<ScriptedRank> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == first) {
      ranks.push_back(job.Start(rank, {"init=gloo", "barrier", how}));
    } else {
      ranks.push_back(job.Start(rank, {"init=gloo", "barrier", absl::StrCat("await=", sign), "shutdown"}));
    }
  }
  ranks[first].AwaitSteps(2);
  // Rank 0 waits in Shutdown for the others; all other cases are over before the others are told to go on.
  if (first != 0 || how != std::string("shutdown")) ranks[first].AwaitEnd();
  GiveSign(sign);
  ExpectSuccess(ranks);
}

}  // namespace
}  // namespace cohort
