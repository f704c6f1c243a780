#include "cohort/runtime/rank_info.h"

#include <stdlib.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string, std::less<>>;

absl::StatusOr<RankInfo> Parse(const Variables& variables) {
  return ParseRankInfo([&](std::string_view name) -> std::optional<std::string> {
    auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

// A healthy environment in which `name` has `value` instead.
Variables With(std::string_view name, std::string_view value) {
  Variables variables = {{"RANK", "3"},       {"WORLD_SIZE", "4"},       {"MASTER_ADDR", "10.0.0.1"},
                         {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};
  variables[std::string(name)] = value;
  return variables;
}

TEST(RankInfoTest, ReadsWhatTorchrunSets) {
  Variables variables = With("RANK", "3");
  variables["TORCHELASTIC_RUN_ID"] = "job 7";
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  absl::StatusOr<RankInfo> info = Parse(variables);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->rank, 3);
  EXPECT_EQ(info->world_size, 4);
  EXPECT_EQ(info->local_rank, 1);
  EXPECT_TRUE(info->has_local_rank);
  EXPECT_EQ(info->local_world_size, 2);
  EXPECT_EQ(info->master_addr, "10.0.0.1");
  EXPECT_EQ(info->master_port, 29500);
  EXPECT_EQ(info->run_id, "job 7");
  EXPECT_EQ(info->restart_count, 2);
  EXPECT_TRUE(info->use_agent_store);
}

TEST(RankInfoTest, NothingIsAWorldOfOne) {
  absl::StatusOr<RankInfo> info = Parse({});
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->rank, 0);
  EXPECT_EQ(info->world_size, 1);
  EXPECT_EQ(info->local_rank, 0);
  EXPECT_FALSE(info->has_local_rank);
  EXPECT_EQ(info->local_world_size, 1);
  EXPECT_EQ(info->master_addr, "");
  EXPECT_EQ(info->master_port, 0);
  EXPECT_EQ(info->run_id, "none");
  EXPECT_EQ(info->restart_count, 0);
  EXPECT_FALSE(info->use_agent_store);
}

TEST(RankInfoTest, AWorldSizeOfOneNeedsNoMaster) {
  absl::StatusOr<RankInfo> info = Parse({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->world_size, 1);
}

TEST(RankInfoTest, HalfAnEnvironmentIsAnErrorThatNamesTheRest) {
  const Variables all = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}};
  int num_cases = 0;
  for (int present = 1; present < 15; ++present) {
    Variables some;
    int bit = 1;
    for (const auto& variable : all) {
      if (present & bit) some.insert(variable);
      bit <<= 1;
    }
    absl::StatusOr<RankInfo> info = Parse(some);
    ASSERT_THAT(info, StatusIs(absl::StatusCode::kInvalidArgument)) << present;
    std::string_view named = info.status().message();
    named = named.substr(0, named.find(':'));
    for (const auto& [name, value] : all) {
      EXPECT_EQ(named.find(name) != std::string_view::npos, !some.contains(name)) << name << " in: " << named;
    }
    ++num_cases;
  }
  EXPECT_EQ(num_cases, 14);
}

TEST(RankInfoTest, AWorldSizeOfOneWithoutRankIsHalfAnEnvironment) {
  EXPECT_THAT(Parse({{"WORLD_SIZE", "1"}}), StatusIs(absl::StatusCode::kInvalidArgument,
                                                     AllOf(HasSubstr("lacks RANK:"), Not(HasSubstr("lacks MASTER")))));
}

struct Malformed {
  const char* name;
  const char* value;
  const char* allowed;
};

void PrintTo(const Malformed& malformed, std::ostream* out) { *out << malformed.name << "=" << malformed.value; }

class MalformedTest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedTest, IsAnErrorThatNamesVariableValueAndRange) {
  const Malformed& m = GetParam();
  EXPECT_THAT(Parse(With(m.name, m.value)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(absl::StrCat(m.name, "=\"", m.value, "\"")), HasSubstr(m.allowed))));
}

constexpr const char* kPort = "an integer from 1 to 65535";
constexpr const char* kRank = "an integer from 0 to 3";
constexpr const char* kWorldSize = "an integer from 1 to 1048576";
constexpr const char* kHost = "a host name or a numeric address, without a port";

INSTANTIATE_TEST_SUITE_P(
    Values, MalformedTest,
    ::testing::Values(Malformed{"MASTER_PORT", "66660", kPort}, Malformed{"MASTER_PORT", "0", kPort},
                      Malformed{"MASTER_PORT", "-1", kPort}, Malformed{"MASTER_PORT", "29500 ", kPort},
                      Malformed{"MASTER_PORT", " 29500", kPort}, Malformed{"MASTER_PORT", "+29500", kPort},
                      Malformed{"MASTER_PORT", "http", kPort}, Malformed{"MASTER_PORT", "", kPort},
                      Malformed{"MASTER_PORT", "18446744073709551617", kPort},  //
                      Malformed{"RANK", "", kRank}, Malformed{"RANK", "x", kRank}, Malformed{"RANK", "-1", kRank},
                      Malformed{"RANK", "4", kRank}, Malformed{"RANK", "1e3", kRank}, Malformed{"RANK", "0x1", kRank},
                      Malformed{"RANK", "1.0", kRank}, Malformed{"RANK", "4294967296", kRank},  //
                      Malformed{"WORLD_SIZE", "0", kWorldSize}, Malformed{"WORLD_SIZE", "", kWorldSize},
                      Malformed{"WORLD_SIZE", "-4", kWorldSize}, Malformed{"WORLD_SIZE", "four", kWorldSize},
                      Malformed{"WORLD_SIZE", "2000000000", kWorldSize},  //
                      Malformed{"LOCAL_RANK", "2", "an integer from 0 to 1"},
                      Malformed{"LOCAL_RANK", "", "an integer from 0 to 1"},
                      Malformed{"LOCAL_RANK", "-1", "an integer from 0 to 1"},
                      Malformed{"LOCAL_WORLD_SIZE", "5", "an integer from 1 to 4"},
                      Malformed{"LOCAL_WORLD_SIZE", "0", "an integer from 1 to 4"},  //
                      Malformed{"MASTER_ADDR", "", kHost}, Malformed{"MASTER_ADDR", "http://node", kHost},
                      Malformed{"MASTER_ADDR", "node 1", kHost}, Malformed{"MASTER_ADDR", "node:29500", kHost},
                      Malformed{"MASTER_ADDR", "[::1", kHost}, Malformed{"MASTER_ADDR", "[node]", kHost},
                      Malformed{"MASTER_ADDR", "[::1]:29500", kHost},  //
                      Malformed{"TORCHELASTIC_RESTART_COUNT", "-1", "an integer from 0 to 1000000000"},
                      Malformed{"TORCHELASTIC_USE_AGENT_STORE", "yes", "True or False"},
                      Malformed{"TORCHELASTIC_USE_AGENT_STORE", "", "True or False"}));

TEST(RankInfoTest, RankMustBeLessThanWorldSizeOfOne) {
  EXPECT_THAT(Parse({{"RANK", "1"}, {"WORLD_SIZE", "1"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("RANK=\"1\": allowed is only 0")));
}

TEST(RankInfoTest, AnUnprintableValueIsShownEscaped) {
  EXPECT_THAT(Parse(With("RANK", "1\n\x01")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("RANK=\"1\\n\\x01\"")));
}

TEST(RankInfoTest, AnOverlongRunIdIsRefused) {
  EXPECT_THAT(Parse(With("TORCHELASTIC_RUN_ID", std::string(256, 'r'))), IsOk());
  EXPECT_THAT(Parse(With("TORCHELASTIC_RUN_ID", std::string(257, 'r'))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 256 bytes")));
}

TEST(RankInfoTest, HostsOfEveryKindAreAccepted) {
  for (auto [value, host] : {std::pair("::1", "::1"),
                             {"[::1]", "::1"},
                             {"[fe80::1%eth0]", "fe80::1%eth0"},
                             {"localhost", "localhost"},
                             {"node-1.cluster_a.example", "node-1.cluster_a.example"},
                             {"127.0.0.1", "127.0.0.1"}}) {
    absl::StatusOr<RankInfo> info = Parse(With("MASTER_ADDR", value));
    ASSERT_THAT(info, IsOk());
    EXPECT_EQ(info->master_addr, host);
  }
}

TEST(RankInfoTest, WithoutLocalRankAProcessCountsItselfAloneOnItsNode) {
  Variables variables = With("RANK", "3");
  variables.erase("LOCAL_RANK");
  variables.erase("LOCAL_WORLD_SIZE");
  absl::StatusOr<RankInfo> info = Parse(variables);
  ASSERT_THAT(info, IsOk());
  EXPECT_FALSE(info->has_local_rank);
  EXPECT_EQ(info->local_rank, 0);
  EXPECT_EQ(info->local_world_size, 1);
}

TEST(RankInfoTest, WithALocalRankButNoLocalWorldSizeThereIsOneNode) {
  Variables variables = With("LOCAL_RANK", "3");
  variables.erase("LOCAL_WORLD_SIZE");
  absl::StatusOr<RankInfo> info = Parse(variables);
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->local_rank, 3);
  EXPECT_EQ(info->local_world_size, 4);
}

TEST(RankInfoTest, TheEnvironmentOfTheProcessIsRead) {
  for (const auto& [name, value] : With("RANK", "2")) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  absl::StatusOr<RankInfo> info = RankInfoFromEnvironment();
  ASSERT_THAT(info, IsOk());
  EXPECT_EQ(info->rank, 2);
  EXPECT_EQ(info->master_addr, "10.0.0.1");
}

}  // namespace
}  // namespace cohort
