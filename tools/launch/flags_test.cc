#include "cohort/tools/launch/flags.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// Each flag as "NAME=VALUE (WHAT)".
std::vector<std::string> Described(const FlagValues& flags) {
  std::vector<std::string> described;
  for (const auto& [name, value] : flags) described.push_back(name + "=" + value.value + " (" + value.what + ")");
  return described;
}

std::vector<std::string> Flags(std::vector<const char*> arguments) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  EXPECT_THAT(line, IsOk());
  return line.ok() ? Described(line->flags) : std::vector<std::string>();
}

std::string Refusal(std::vector<const char*> arguments) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  EXPECT_THAT(line, StatusIs(absl::StatusCode::kInvalidArgument));
  return std::string(line.status().message());
}

TEST(FlagsTest, BothSpellingsAndBothFormsAreOneFlag) {
  EXPECT_THAT(Flags({"--nproc-per-node=4", "p"}), ElementsAre("--nproc-per-node=4 (--nproc-per-node)"));
  EXPECT_THAT(Flags({"--nproc_per_node=4", "p"}), ElementsAre("--nproc-per-node=4 (--nproc_per_node)"));
  EXPECT_THAT(Flags({"--nproc-per-node", "4", "p"}), ElementsAre("--nproc-per-node=4 (--nproc-per-node)"));
  EXPECT_THAT(Flags({"--tee="}), ElementsAre("--tee= (--tee)"));
  EXPECT_THAT(Flags({"--log-dir", "-odd", "p"}), ElementsAre("--log-dir=-odd (--log-dir)"));
}

TEST(FlagsTest, ShortNamesAreTakenWithAndWithoutABlank) {
  EXPECT_THAT(Flags({"-r", "3", "-t1:2", "p"}), ElementsAre("--redirects=3 (-r)", "--tee=1:2 (-t)"));
  EXPECT_THAT(Flags({"-t=3", "p"}), ElementsAre("--tee=3 (-t)"));
  EXPECT_THAT(Flags({"-h"}), ElementsAre("--help= (-h)"));
}

TEST(FlagsTest, TheLastOfTwoCounts) {
  EXPECT_THAT(Flags({"-r", "3", "--redirects=1", "p"}), ElementsAre("--redirects=1 (--redirects)"));
  EXPECT_THAT(Flags({"--grace=1", "--shutdown-timeout=2", "p"}), ElementsAre("--grace=2 (--shutdown-timeout)"));
}

TEST(FlagsTest, EverythingAfterTheProgramBelongsToIt) {
  const absl::StatusOr<CommandLine> line =
      ParseCommandLine(std::vector<const char*>{"--standalone", "p", "--nnodes=9", "--", "--help", "-x"});
  ASSERT_THAT(line, IsOk());
  EXPECT_THAT(Described(line->flags), ElementsAre("--standalone= (--standalone)"));
  EXPECT_THAT(line->command, ElementsAre("p", "--nnodes=9", "--", "--help", "-x"));
  EXPECT_THAT(ParseCommandLine(std::vector<const char*>{"--", "-odd-name", "x"})->command,
              ElementsAre("-odd-name", "x"));
}

TEST(FlagsTest, HelpEndsIt) { EXPECT_THAT(Flags({"--help", "--no-such-flag"}), ElementsAre("--help= (--help)")); }

TEST(FlagsTest, AValueMustBeThereIfAndOnlyIfTheFlagTakesOne) {
  EXPECT_EQ(Refusal({"--grace"}), "--grace needs a value");
  EXPECT_EQ(Refusal({"-r"}), "-r needs a value");
  EXPECT_EQ(Refusal({"--standalone=yes", "p"}), "--standalone=yes: --standalone takes no value");
  EXPECT_EQ(Refusal({"-hx", "p"}), "-hx: -h takes no value");
}

TEST(FlagsTest, AnUnknownFlagIsNamedWithTheNearestOne) {
  EXPECT_EQ(Refusal({"--nproc_per_nod=2"}), "unknown flag --nproc_per_nod; did you mean --nproc-per-node?");
  EXPECT_EQ(Refusal({"--nproc=2"}), "unknown flag --nproc; did you mean --nproc-per-node?");
  EXPECT_EQ(Refusal({"--masterport=2"}), "unknown flag --masterport; did you mean --master-port?");
  EXPECT_EQ(Refusal({"--grcae", "2"}), "unknown flag --grcae; did you mean --grace?");
  EXPECT_EQ(Refusal({"--verbose"}), "unknown flag --verbose");
  EXPECT_EQ(Refusal({"--foo"}), "unknown flag --foo");
  EXPECT_EQ(Refusal({"-n", "2"}), "unknown flag -n");
  EXPECT_EQ(Refusal({"-", "2"}), "unknown flag -");
  EXPECT_EQ(Refusal({"--a\x1b[2J"}), "unknown flag --a\\033[2J");
}

// All that torchrun of the pinned PyTorch has and this launcher does not.
TEST(FlagsTest, TorchrunsFlagsThatMeanNothingHereSayWhy) {
  for (const char* flag :
       {"-m", "--module", "--run-path", "--run_path", "--start-method", "--event-log-handler", "--logs-specs",
        "--rdzv-conf", "--local-addr", "--log-line-prefix-template", "--duplicate-stdout-filters",
        "--duplicate_stderr_filters", "--numa-binding", "--virtual-local-rank", "--print-completion"}) {
    EXPECT_THAT(Refusal({flag, "x", "p"}), HasSubstr(std::string(flag) + " means nothing here: "));
  }
  EXPECT_EQ(Refusal({"--rdzv-conf=timeout=3", "p"}),
            "--rdzv-conf means nothing here: there is no rendezvous to configure: machines are told their number by "
            "--node-rank");
}

TEST(FlagsTest, TorchrunsVariablesStandInForFlags) {
  FlagValues flags = ParseCommandLine(std::vector<const char*>{"--nnodes=2", "p"})->flags;
  const Environment environment = {{"PET_NNODES", "3"},        {"PET_NPROC_PER_NODE", "gpu"}, {"PET_STANDALONE", "1"},
                                   {"PET_NO_PYTHON", "0"},     {"PET_SHUTDOWN_TIMEOUT", "7"}, {"PET_TEE", ""},
                                   {"PET_START_METHOD", ""},   {"PET_MODULE", "0"},           {"PET_GRACE", "9"},
                                   {"PET_NO_SUCH_FLAG", "yes"}};
  ASSERT_THAT(AddFlagsFromEnvironment(environment, flags), IsOk());
  EXPECT_THAT(Described(flags),
              UnorderedElementsAre("--nnodes=2 (--nnodes)", "--nproc-per-node=gpu (PET_NPROC_PER_NODE)",
                                   "--standalone= (PET_STANDALONE)", "--grace=7 (PET_SHUTDOWN_TIMEOUT)"));
}

TEST(FlagsTest, ABadVariableIsNamed) {
  FlagValues flags;
  EXPECT_THAT(AddFlagsFromEnvironment({{"PET_STANDALONE", "yes"}}, flags),
              StatusIs(absl::StatusCode::kInvalidArgument, "PET_STANDALONE=yes: must be 0 or 1"));
  EXPECT_THAT(AddFlagsFromEnvironment({{"PET_MODULE", "1"}}, flags),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("PET_MODULE means nothing here: ")));
}

}  // namespace
}  // namespace cohort::launch
