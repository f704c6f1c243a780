#include "cohort/checkpoint/internal/run_file.h"

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

RunFile Example() {
  return {.run_id = "a \"run\"", .created = absl::FromCivil(absl::CivilSecond(2026, 12, 2, 10), absl::UTCTimeZone())};
}

auto IsInvalid(std::string_view why) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(why)));
}

TEST(RunFileTest, IsThisText) {
  EXPECT_EQ(EncodeRunFile(Example()),
            "{\"version\": 1, \"run_id\": \"a \\\"run\\\"\", \"created\": \"2026-12-02T10:00:00Z\"}\n");
}

TEST(RunFileTest, ComesBack) {
  const absl::StatusOr<RunFile> decoded = DecodeRunFile(EncodeRunFile(Example()));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->run_id, Example().run_id);
  EXPECT_EQ(decoded->created, Example().created);
}

TEST(RunFileTest, ALaterVersionIsRefusedByItsNumber) {
  EXPECT_THAT(DecodeRunFile("{\"version\": 7, new"), IsInvalid("it is of version 7; this cohort reads version 1"));
}

TEST(RunFileTest, IsNothingElse) {
  const std::string created = ", \"created\": \"2026-12-02T10:00:00Z\"";
  const auto with = [&](std::string_view members) {
    return DecodeRunFile(absl::StrCat("{\"version\": 1, ", members, "}"));
  };
  EXPECT_THAT(with("\"run_id\": \"r\"" + created), IsOk());
  EXPECT_THAT(with("\"new\": {\"run_id\": [1]}, \"run_id\": \"r\"" + created), IsOk());
  EXPECT_THAT(with("\"run_id\": \"r\""), IsInvalid("there is no \"created\""));
  EXPECT_THAT(with("\"x\": [{\"run_id\": \"r\"}]" + created), IsInvalid("there is no \"run_id\""));
  EXPECT_THAT(with("\"run_id\": 7" + created), IsInvalid("\"run_id\" is 7; allowed is 1 to 256 printable ASCII"));
  EXPECT_THAT(with("\"run_id\": null" + created), IsInvalid("\"run_id\" is null"));
  EXPECT_THAT(with("\"run_id\": {}" + created), IsInvalid("\"run_id\" is an object"));
  EXPECT_THAT(with("\"run_id\": [\"r\"]" + created), IsInvalid("\"run_id\" is a list"));
  EXPECT_THAT(with("\"run_id\": \"\"" + created), IsInvalid("the run id is \"\""));
  EXPECT_THAT(with("\"run_id\": \"a\\nb\"" + created), IsInvalid("the run id is \"a\\nb\""));
  EXPECT_THAT(with("\"run_id\": \"r\", \"run_id\": \"s\"" + created), IsInvalid("\"run_id\" stands there twice"));
  EXPECT_THAT(with("\"run_id\": \"r\", \"created\": \"today\""), IsInvalid("\"created\" is \"today\"; allowed is"));
  EXPECT_THAT(with("\"run_id\": \"r\", \"created\": 1.5"), IsInvalid("\"created\" is 1.5"));
  EXPECT_THAT(with("\"run_id\": \"r\"" + created + created), IsInvalid("\"created\" stands there twice"));
  EXPECT_THAT(with("\"run_id\": \"r\"" + created + "}"), IsInvalid("it is not JSON"));
  EXPECT_THAT(DecodeRunFile(""), IsInvalid("it begins with"));
  EXPECT_THAT(DecodeRunFile(std::string(kMaxRunFileBytes + 1, ' ')), IsInvalid("allowed are at most 65536"));
}

TEST(RunFileTest, ACutOneIsAnError) {
  const std::string text = EncodeRunFile(Example());
  for (size_t size = 0; size + 1 < text.size(); ++size) {  // without the newline it is whole
    EXPECT_FALSE(DecodeRunFile(text.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace cohort::internal
