#include "cohort/tools/launch/options.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::Not;

// A machine with 4 GPUs and 6 processors.
const Devices kDevices = {.count_gpus = [] { return 4; }, .count_cpus = [] { return 6; }};

absl::StatusOr<Options> Parse(std::vector<const char*> arguments, const Environment& environment = {}) {
  return ParseOptions(arguments, environment, kDevices);
}

// The message that `arguments`, followed by a program, are refused with.
std::string Refusal(std::vector<const char*> arguments, const Environment& environment = {},
                    const Devices& devices = kDevices) {
  arguments.push_back("program");
  const absl::StatusOr<Options> options = ParseOptions(arguments, environment, devices);
  EXPECT_THAT(options, StatusIs(absl::StatusCode::kInvalidArgument));
  return std::string(options.status().message());
}

TEST(OptionsTest, AProgramAloneGetsTheDefaults) {
  const absl::StatusOr<Options> options = Parse({"./program", "--epochs=3"});
  ASSERT_THAT(options, IsOk());
  EXPECT_FALSE(options->help);
  EXPECT_EQ(options->nproc_per_node, 1);
  EXPECT_EQ(options->nnodes, 1);
  EXPECT_EQ(options->node_rank, 0);
  EXPECT_EQ(options->master_addr, "127.0.0.1");
  EXPECT_EQ(options->master_port, std::nullopt);
  EXPECT_EQ(options->run_id, std::nullopt);
  EXPECT_EQ(options->role, "default");
  EXPECT_EQ(options->max_restarts, 0);
  EXPECT_EQ(options->grace, absl::Seconds(30));
  EXPECT_EQ(options->log_dir, std::nullopt);
  EXPECT_THAT(options->outputs, ElementsAre(RankOutputPlan()));
  EXPECT_FALSE(options->dry_run);
  EXPECT_THAT(options->command, ElementsAre("./program", "--epochs=3"));
}

TEST(OptionsTest, EveryFlagIsUnderstood) {
  const absl::StatusOr<Options> options = Parse({"--nproc-per-node=4",
                                                 "--nnodes=3",
                                                 "--node-rank=2",
                                                 "--master-addr=node-0",
                                                 "--master-port=29500",
                                                 "--rdzv-backend=static",
                                                 "--rdzv-id=job-7",
                                                 "--role=trainer",
                                                 "--grace=2.5",
                                                 "--max-restarts=0",
                                                 "--monitor-interval=0.1",
                                                 "--log-dir=/logs",
                                                 "-r",
                                                 "0:3",
                                                 "-t",
                                                 "1",
                                                 "--local-ranks-filter=0,1",
                                                 "--signals-to-handle=SIGTERM,SIGUSR1",
                                                 "--no-python",
                                                 "--dry-run",
                                                 "program"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->nproc_per_node, 4);
  EXPECT_EQ(options->nnodes, 3);
  EXPECT_EQ(options->node_rank, 2);
  EXPECT_EQ(options->master_addr, "node-0");
  EXPECT_EQ(options->master_port, 29500);
  EXPECT_EQ(options->run_id, "job-7");
  EXPECT_EQ(options->role, "trainer");
  EXPECT_EQ(options->grace, absl::Milliseconds(2500));
  EXPECT_EQ(options->log_dir, "/logs");
  EXPECT_EQ(options->outputs, *MakeOutputPlan({.redirects = "0:3", .tee = "1", .local_ranks_filter = "0,1"}, 4));
  EXPECT_TRUE(options->dry_run);
  EXPECT_EQ(Parse({"--max-restarts=3", "program"})->max_restarts, 3);
}

// As users of torchrun have them in their scripts.
TEST(OptionsTest, TorchrunsCommandLinesWork) {
  for (const std::vector<const char*>& arguments : {
           std::vector<const char*>{"--standalone", "--nnodes=1", "--nproc-per-node=4", "--no-python", "program"},
           {"--standalone", "--nproc_per_node", "gpu", "--no_python", "program"},
           {"--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--nnodes=1:1", "--nproc-per-node=4", "program"},
           {"--nnodes=1", "--node_rank=0", "--master_addr=127.0.0.1", "--nproc_per_node=auto", "program"},
           {"--max_restarts=0", "--monitor_interval=5", "--rdzv_id=none", "--nproc_per_node=4", "program"},
       }) {
    const absl::StatusOr<Options> options = Parse(arguments);
    ASSERT_THAT(options, IsOk());
    EXPECT_EQ(options->nproc_per_node, 4);
    EXPECT_EQ(options->nnodes, 1);
    EXPECT_THAT(options->master_addr, testing::AnyOf("127.0.0.1", "localhost"));
    EXPECT_EQ(options->master_port, std::nullopt);
  }
}

TEST(OptionsTest, HelpAndExplainNeedNoProgram) {
  for (const char* flag : {"--help", "-h"}) {
    const absl::StatusOr<Options> options = Parse({"--nproc-per-node=2", flag});
    ASSERT_THAT(options, IsOk());
    EXPECT_TRUE(options->help);
  }
  const absl::StatusOr<Options> options = Parse({"--explain"});
  ASSERT_THAT(options, IsOk());
  EXPECT_TRUE(options->explain);
}

TEST(OptionsTest, HelpNamesEveryFlag) {
  for (const char* flag : {"--nproc-per-node",
                           "--nnodes",
                           "--node-rank",
                           "--master-addr",
                           "--master-port",
                           "--rdzv-endpoint",
                           "--rdzv-backend",
                           "--rdzv-id",
                           "--standalone",
                           "--max-restarts",
                           "--monitor-interval",
                           "--role",
                           "--log-dir",
                           "-r, --redirects",
                           "-t, --tee",
                           "--local-ranks-filter",
                           "--signals-to-handle",
                           "--no-python",
                           "--grace",
                           "--shutdown-timeout",
                           "--dry-run",
                           "--explain",
                           "-h, --help",
                           "COHORT_LAUNCH_GRACE",
                           "PET_NNODES"}) {
    EXPECT_THAT(std::string(HelpText()), HasSubstr(flag));
  }
}

// --- How many ranks.

TEST(OptionsTest, RanksCanBeAsManyAsDevices) {
  EXPECT_EQ(Parse({"--nproc-per-node=gpu", "program"})->nproc_per_node, 4);
  EXPECT_EQ(Parse({"--nproc-per-node=cpu", "program"})->nproc_per_node, 6);
  EXPECT_EQ(Parse({"--nproc-per-node=auto", "program"})->nproc_per_node, 4);
  EXPECT_EQ(Parse({"--nproc-per-node=gpu", "-t", "3", "program"})->outputs.size(), 4);
}

TEST(OptionsTest, WithoutAGpuAutoIsCpuAndGpuIsAnError) {
  const Devices no_gpu = {.count_gpus = [] { return 0; }, .count_cpus = [] { return 6; }};
  EXPECT_EQ(ParseOptions({"--nproc-per-node=auto", "program"}, {}, no_gpu)->nproc_per_node, 6);
  EXPECT_EQ(
      Refusal({"--nproc-per-node=gpu"}, {}, no_gpu),
      "--nproc-per-node=gpu: this machine shows no GPU (no NVIDIA driver, no device, or CUDA_VISIBLE_DEVICES hides "
      "it)");
}

TEST(OptionsTest, ADriverThatDoesNotWorkIsNotTakenForNoGpu) {
  const Devices broken = {.count_gpus = [] { return absl::UnavailableError("it does not work"); },
                          .count_cpus = [] { return 6; }};
  for (const char* value : {"gpu", "auto"}) {
    EXPECT_EQ(Refusal({absl::StrCat("--nproc-per-node=", value).c_str()}, {}, broken),
              absl::StrCat("--nproc-per-node=", value, ": it does not work; a number can be given instead"));
  }
}

TEST(OptionsTest, MoreDevicesThanRanksCanBeStartedIsAnError) {
  const Devices many = {.count_gpus = [] { return 0; }, .count_cpus = [] { return 2048; }};
  EXPECT_EQ(Refusal({"--nproc-per-node=cpu"}, {}, many),
            "--nproc-per-node=cpu: 2048 of them, and at most 1024 ranks can be started");
}

TEST(OptionsTest, NumbersAreTakenStrictly) {
  for (const char* value : {"0", "1025", "100000", "-1", "+1", " 1", "1.0", "two", "", "xpu"}) {
    EXPECT_EQ(Refusal({absl::StrCat("--nproc-per-node=", value).c_str()}),
              absl::StrCat("--nproc-per-node=", value, ": must be an integer from 1 to 1024, gpu, cpu or auto"));
  }
  EXPECT_EQ(Refusal({"--nnodes=0"}), "--nnodes=0: must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal({"--nnodes=0:0"}), "--nnodes=0: must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal({"--node-rank=-1"}), "--node-rank=-1: must be an integer from 0 to 65535");
  EXPECT_EQ(Refusal({"--master-port=0"}), "--master-port=0: must be an integer from 1 to 65535");
  EXPECT_EQ(Refusal({"--max-restarts=-1"}), "--max-restarts=-1: must be an integer from 0 to 1000");
  EXPECT_EQ(Refusal({"--grace=86401"}), "--grace=86401: must be a number of seconds from 0 to 86400");
  EXPECT_EQ(Refusal({"--shutdown-timeout=x"}), "--shutdown-timeout=x: must be a number of seconds from 0 to 86400");
  for (const char* value : {"0", "-1", "fast", "0.0"}) {
    EXPECT_EQ(Refusal({absl::StrCat("--monitor-interval=", value).c_str()}),
              absl::StrCat("--monitor-interval=", value, ": must be a number of seconds above 0"));
  }
  EXPECT_EQ(Parse({"--grace=0", "program"})->grace, absl::ZeroDuration());
}

// --- What does not go together, or not at all.

TEST(OptionsTest, NodesMustAgree) {
  EXPECT_EQ(Refusal({"--standalone", "--nnodes=2", "--master-addr=a", "--master-port=1"}),
            "--standalone means one node, and --nnodes=2 says otherwise");
  EXPECT_EQ(Refusal({"--node-rank=1"}), "--node-rank=1: must be below --nnodes=1");
  EXPECT_EQ(Refusal({"--nnodes=2", "--node-rank=2", "--master-addr=a", "--master-port=1"}),
            "--node-rank=2: must be below --nnodes=2");
  EXPECT_EQ(Refusal({"--nnodes=1:4"}), "--nnodes=1:4: must be one number of nodes: there are no elastic ranges here");
  for (const char* flag : {"--master-addr=a", "--rdzv-endpoint=a", "--rdzv-endpoint=a:0"}) {
    EXPECT_EQ(Refusal({"--nnodes=2", flag}),
              "--nnodes=2 needs --master-port (of the node with --node-rank=0), the same on every node");
  }
  EXPECT_EQ(Refusal({"--nnodes=2", "--master-port=1"}),
            "--nnodes=2 needs --master-addr (of the node with --node-rank=0), the same on every node");
  EXPECT_EQ(
      Refusal({"--nnodes=2"}),
      "--nnodes=2 needs --master-addr and --master-port (of the node with --node-rank=0), the same on every node");
}

TEST(OptionsTest, AnEndpointIsAddressAndPort) {
  const absl::StatusOr<Options> options = Parse({"--nnodes=2", "--rdzv-endpoint=[fd00::1]:29500", "program"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->master_addr, "fd00::1");
  EXPECT_EQ(options->master_port, 29500);
  EXPECT_THAT(Parse({"--rdzv-endpoint=a:1", "--master-addr=a", "--master-port=1", "program"}), IsOk());
  EXPECT_EQ(Refusal({"--rdzv-endpoint=a:1", "--master_addr=b"}),
            "--rdzv-endpoint=a:1 and --master_addr=b name two places for rank 0 to listen at");
  EXPECT_EQ(Refusal({"--rdzv-endpoint=a:1", "--master-port=2"}),
            "--rdzv-endpoint=a:1 and --master-port=2 name two places for rank 0 to listen at");
  EXPECT_EQ(Refusal({"--rdzv-endpoint=a", "--master-port=2"}),
            "--rdzv-endpoint=a and --master-port=2 name two places for rank 0 to listen at");
}

TEST(OptionsTest, ARendezvousThatGivesNumbersIsNotHere) {
  for (const char* endpoint : {"--rdzv-endpoint=a:1", "--rdzv-endpoint=a"}) {
    EXPECT_EQ(Refusal({"--rdzv-backend=c10d", "--nnodes=2", endpoint}),
              "--rdzv-backend=c10d means nothing here with --nnodes=2: nobody gives the nodes their numbers; use static "
              "with --node-rank, or torchrun, under which programs run as well");
  }
  EXPECT_EQ(Refusal({"--rdzv-backend=etcd-v2"}), "--rdzv-backend=etcd-v2: must be static, or c10d with one node");
}

TEST(OptionsTest, RestartsOfSeveralNodesAreTorchruns) {
  EXPECT_THAT(Refusal({"--max-restarts=3", "--nnodes=2", "--rdzv-endpoint=a:1"}),
              AllOf(HasSubstr("--max-restarts=3 with --nnodes=2: "), HasSubstr("use torchrun")));
  EXPECT_THAT(Parse({"--max-restarts=0", "--nnodes=2", "--rdzv-endpoint=a:1", "program"}), IsOk());
}

TEST(OptionsTest, NamesAndSignalsAreChecked) {
  EXPECT_THAT(Refusal({"--rdzv-id=../x"}), HasSubstr("--rdzv-id=../x: must be 1 to 128 letters"));
  EXPECT_THAT(Refusal({"--role=a b"}), HasSubstr("--role=a b: must be 1 to 128 letters"));
  EXPECT_EQ(Refusal({"--signals-to-handle=SIGTERM,SIGWINCH"}),
            "--signals-to-handle=SIGTERM,SIGWINCH: must be of SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2");
  EXPECT_EQ(Refusal({"--log-dir="}), "--log-dir=: must be a directory");
  EXPECT_THAT(Refusal({"--tee=4"}), HasSubstr("--tee=4: must be "));
}

TEST(OptionsTest, ARelativeLogDirectoryIsWhereTheUserStands) {
  EXPECT_EQ(Parse({"--log-dir=logs", "program"})->log_dir, "logs");
  const Environment bazel_run = {{"BUILD_WORKING_DIRECTORY", "/home/user"}};
  EXPECT_EQ(Parse({"--log-dir=logs", "program"}, bazel_run)->log_dir, "/home/user/logs");
  EXPECT_EQ(Parse({"--log-dir=/logs", "program"}, bazel_run)->log_dir, "/logs");
}

TEST(OptionsTest, AProgramMustBeGiven) {
  EXPECT_THAT(Parse({}), StatusIs(absl::StatusCode::kInvalidArgument, "no program given"));
  EXPECT_THAT(Parse({"--nproc-per-node=2", "--"}), StatusIs(absl::StatusCode::kInvalidArgument, "no program given"));
}

// --- The environment.

TEST(OptionsTest, TheEnvironmentStandsInForFlags) {
  const Environment environment = {{"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "4000"}, {"COHORT_LAUNCH_GRACE", "7"}};
  const absl::StatusOr<Options> from_environment = Parse({"--nnodes=2", "program"}, environment);
  ASSERT_THAT(from_environment, IsOk());
  EXPECT_EQ(from_environment->master_addr, "node-0");
  EXPECT_EQ(from_environment->master_port, 4000);
  EXPECT_EQ(from_environment->grace, absl::Seconds(7));

  const absl::StatusOr<Options> from_flags =
      Parse({"--master-addr=node-9", "--master-port=9", "--grace=9", "program"}, environment);
  ASSERT_THAT(from_flags, IsOk());
  EXPECT_EQ(from_flags->master_addr, "node-9");
  EXPECT_EQ(from_flags->master_port, 9);
  EXPECT_EQ(from_flags->grace, absl::Seconds(9));
}

TEST(OptionsTest, FlagsComeFirstThenTorchrunsVariablesThenTheMasters) {
  const Environment environment = {
      {"PET_NNODES", "2"}, {"PET_MASTER_ADDR", "node-1"}, {"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "4000"}};
  const absl::StatusOr<Options> options = Parse({"--nnodes=3", "program"}, environment);
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->nnodes, 3);
  EXPECT_EQ(options->master_addr, "node-1");
  EXPECT_EQ(options->master_port, 4000);
  EXPECT_EQ(Refusal({"--standalone", "program"}, {{"PET_NNODES", "2"}}),
            "--standalone means one node, and PET_NNODES=2 says otherwise");
  EXPECT_EQ(Refusal({"program"}, {{"PET_NNODES", "2"}, {"MASTER_ADDR", "a"}}),
            "PET_NNODES=2 needs --master-port (of the node with --node-rank=0), the same on every node");
  // An endpoint is both: half of it is not taken from elsewhere.
  EXPECT_EQ(Parse({"--rdzv-endpoint=a", "program"}, {{"MASTER_PORT", "4000"}})->master_port, std::nullopt);
}

TEST(OptionsTest, AnotherJobsVariablesAreNotOurs) {
  const Environment inside_a_rank = {{"RANK", "0"},          {"MASTER_ADDR", "node-0"},       {"MASTER_PORT", "4000"},
                                     {"PET_NNODES", "2"},    {"PET_RDZV_BACKEND", "c10d"},    {"PET_MODULE", "1"},
                                     {"WORLD_SIZE", "many"}, {"PET_RDZV_ENDPOINT", "node:1"}, {"PET_ROLE", "outer"}};
  const absl::StatusOr<Options> options = Parse({"program"}, inside_a_rank);
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->nnodes, 1);
  EXPECT_EQ(options->role, "default");
  EXPECT_EQ(options->master_addr, "127.0.0.1");
  EXPECT_EQ(options->master_port, std::nullopt);
}

TEST(OptionsTest, ABadVariableIsNamed) {
  EXPECT_EQ(Refusal({}, {{"PET_NNODES", "many"}}), "PET_NNODES=many: must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal({}, {{"MASTER_PORT", "http"}}), "MASTER_PORT=http: must be an integer from 1 to 65535");
  EXPECT_EQ(Refusal({}, {{"MASTER_ADDR", ""}}), "MASTER_ADDR=: must be a host name or an address");
  EXPECT_EQ(Refusal({}, {{"COHORT_LAUNCH_GRACE", "long"}}),
            "COHORT_LAUNCH_GRACE=long: must be a number of seconds from 0 to 86400");
}

}  // namespace
}  // namespace cohort::launch
