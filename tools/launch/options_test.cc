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

absl::StatusOr<Options> Parse(std::vector<const char*> arguments, const Environment& environment = {}) {
  return ParseOptions(arguments, environment);
}

// The message that `arguments`, followed by a program, are refused with.
std::string Refusal(std::vector<const char*> arguments, const Environment& environment = {}) {
  arguments.push_back("program");
  const absl::StatusOr<Options> options = ParseOptions(arguments, environment);
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
  EXPECT_EQ(options->grace, absl::Seconds(30));
  EXPECT_THAT(options->command, ElementsAre("./program", "--epochs=3"));
}

TEST(OptionsTest, EveryFlagIsUnderstood) {
  const absl::StatusOr<Options> options =
      Parse({"--nproc-per-node=4", "--nnodes=3", "--node-rank=2", "--master-addr=node-0", "--master-port=29500",
             "--grace=2.5", "--max-restarts=0", "--no-python", "program"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->nproc_per_node, 4);
  EXPECT_EQ(options->nnodes, 3);
  EXPECT_EQ(options->node_rank, 2);
  EXPECT_EQ(options->master_addr, "node-0");
  EXPECT_EQ(options->master_port, 29500);
  EXPECT_EQ(options->grace, absl::Milliseconds(2500));
}

TEST(OptionsTest, BothSpellingsAndBothFormsMeanTheSame) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{"--nproc-per-node=4", "program"},
                                                    {"--nproc_per_node=4", "program"},
                                                    {"--nproc-per-node", "4", "program"},
                                                    {"--nproc_per_node", "4", "program"}}) {
    const absl::StatusOr<Options> options = Parse(arguments);
    ASSERT_THAT(options, IsOk());
    EXPECT_EQ(options->nproc_per_node, 4);
    EXPECT_THAT(options->command, ElementsAre("program"));
  }
}

TEST(OptionsTest, EverythingAfterTheProgramBelongsToIt) {
  const absl::StatusOr<Options> options = Parse({"--standalone", "program", "--nnodes=9", "--", "--help", "-x"});
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->nnodes, 1);
  EXPECT_THAT(options->command, ElementsAre("program", "--nnodes=9", "--", "--help", "-x"));
}

TEST(OptionsTest, TwoDashesEndTheFlags) {
  const absl::StatusOr<Options> options = Parse({"--nproc-per-node=2", "--", "-odd-name", "x"});
  ASSERT_THAT(options, IsOk());
  EXPECT_THAT(options->command, ElementsAre("-odd-name", "x"));
}

TEST(OptionsTest, TheLastOfTwoCounts) {
  EXPECT_EQ(Parse({"--nproc-per-node=2", "--nproc-per-node=3", "program"})->nproc_per_node, 3);
}

TEST(OptionsTest, HelpNeedsNoProgramAndNamesEveryFlag) {
  for (const char* flag : {"--help", "-h"}) {
    const absl::StatusOr<Options> options = Parse({"--nproc-per-node=2", flag});
    ASSERT_THAT(options, IsOk());
    EXPECT_TRUE(options->help);
  }
  for (const char* flag :
       {"--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port", "--max-restarts", "--grace",
        "--standalone", "--no-python", "--help", "COHORT_LAUNCH_GRACE"}) {
    EXPECT_THAT(std::string(HelpText()), HasSubstr(flag));
  }
}

TEST(OptionsTest, AnUnknownFlagIsNamedWithTheNearestOne) {
  EXPECT_EQ(Refusal({"--nproc_per_nod=2"}), "unknown flag --nproc_per_nod; did you mean --nproc-per-node?");
  EXPECT_EQ(Refusal({"--nproc=2"}), "unknown flag --nproc; did you mean --nproc-per-node?");
  EXPECT_EQ(Refusal({"--masterport=2"}), "unknown flag --masterport; did you mean --master-port?");
  EXPECT_EQ(Refusal({"--grcae", "2"}), "unknown flag --grcae; did you mean --grace?");
  EXPECT_EQ(Refusal({"--rdzv-endpoint=x"}), "unknown flag --rdzv-endpoint");
  EXPECT_EQ(Refusal({"-n", "2"}), "unknown flag -n");
}

TEST(OptionsTest, NumbersAreTakenStrictly) {
  for (const char* value :
       {"0", "1025", "-1", "+1", " 1", "1 ", "1.0", "0x1", "two", "", "99999999999999999999", "gpu"}) {
    EXPECT_EQ(Refusal({absl::StrCat("--nproc-per-node=", value).c_str()}),
              absl::StrCat("--nproc-per-node=", value, ": must be an integer from 1 to 1024"));
  }
  EXPECT_EQ(Refusal({"--nproc_per_node", "0"}), "--nproc_per_node=0: must be an integer from 1 to 1024");
  EXPECT_EQ(Refusal({"--nnodes=0"}), "--nnodes=0: must be an integer from 1 to 65536");
  EXPECT_EQ(Refusal({"--node-rank=-1"}), "--node-rank=-1: must be an integer from 0 to 65535");
  EXPECT_EQ(Refusal({"--master-port=0"}), "--master-port=0: must be an integer from 1 to 65535");
  EXPECT_EQ(Refusal({"--master-port=65536"}), "--master-port=65536: must be an integer from 1 to 65535");
  for (const char* value : {"-1", "inf", "nan", "1e3", "2s", ".", "1.2.3", "", "86401"}) {
    EXPECT_EQ(Refusal({absl::StrCat("--grace=", value).c_str()}),
              absl::StrCat("--grace=", value, ": must be a number of seconds from 0 to 86400"));
  }
  EXPECT_EQ(Parse({"--grace=0", "program"})->grace, absl::ZeroDuration());
}

TEST(OptionsTest, WhatIsNotSupportedIsSaid) {
  EXPECT_EQ(Refusal({"--max-restarts=3"}), "--max-restarts=3: must be 0: restarting a failed job is not supported");
  EXPECT_EQ(Refusal({"--nnodes=1:4"}), "--nnodes=1:4: must be one number of nodes: there are no elastic ranges here");
}

TEST(OptionsTest, AValueMustBeThereIfAndOnlyIfTheFlagTakesOne) {
  EXPECT_THAT(Parse({"--grace"}), StatusIs(absl::StatusCode::kInvalidArgument, "--grace needs a value"));
  EXPECT_EQ(Refusal({"--standalone=yes"}), "--standalone=yes: --standalone takes no value");
}

TEST(OptionsTest, AnAddressLooksLikeOne) {
  for (const char* value : {"", "a b", "[::1", "http://node", "node\n"}) {
    EXPECT_EQ(Refusal({absl::StrCat("--master-addr=", value).c_str()}),
              absl::StrCat("--master-addr=", value, ": must be a host name or an address"));
  }
  EXPECT_EQ(Parse({"--master-addr=[fe80::1%eth0]", "program"})->master_addr, "fe80::1%eth0");
  EXPECT_EQ(Parse({"--master-addr=::1", "program"})->master_addr, "::1");
}

TEST(OptionsTest, FlagsMustAgree) {
  EXPECT_EQ(Refusal({"--standalone", "--nnodes=2", "--master-addr=a", "--master-port=1"}),
            "--standalone means one node, and --nnodes=2 says otherwise");
  EXPECT_EQ(Refusal({"--node-rank=1"}), "--node-rank=1: must be below --nnodes=1");
  EXPECT_EQ(Refusal({"--nnodes=2", "--node-rank=2", "--master-addr=a", "--master-port=1"}),
            "--node-rank=2: must be below --nnodes=2");
  EXPECT_THAT(Refusal({"--nnodes=2", "--master-addr=a"}),
              AllOf(HasSubstr("--nnodes=2 needs --master-addr and --master-port")));
  EXPECT_THAT(Refusal({"--nnodes=2", "--master-port=1"}),
              HasSubstr("--nnodes=2 needs --master-addr and --master-port"));
}

TEST(OptionsTest, AProgramMustBeGiven) {
  EXPECT_THAT(Parse({}), StatusIs(absl::StatusCode::kInvalidArgument, "no program given"));
  EXPECT_THAT(Parse({"--nproc-per-node=2", "--"}), StatusIs(absl::StatusCode::kInvalidArgument, "no program given"));
}

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

TEST(OptionsTest, ABadVariableIsNamed) {
  EXPECT_EQ(Refusal({}, {{"MASTER_PORT", "http"}}), "MASTER_PORT=http: must be an integer from 1 to 65535");
  EXPECT_EQ(Refusal({}, {{"MASTER_ADDR", ""}}), "MASTER_ADDR=: must be a host name or an address");
  EXPECT_EQ(Refusal({}, {{"COHORT_LAUNCH_GRACE", "long"}}),
            "COHORT_LAUNCH_GRACE=long: must be a number of seconds from 0 to 86400");
}

TEST(OptionsTest, AnotherJobsMasterIsNotOurs) {
  const Environment inside_a_rank = {{"RANK", "0"}, {"MASTER_ADDR", "node-0"}, {"MASTER_PORT", "4000"}};
  const absl::StatusOr<Options> options = Parse({"program"}, inside_a_rank);
  ASSERT_THAT(options, IsOk());
  EXPECT_EQ(options->master_addr, "127.0.0.1");
  EXPECT_EQ(options->master_port, std::nullopt);
}

}  // namespace
}  // namespace cohort::launch
