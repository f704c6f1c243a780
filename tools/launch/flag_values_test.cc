#include "cohort/tools/launch/flag_values.h"

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::Not;

auto IsRefused(std::string_view message) { return StatusIs(absl::StatusCode::kInvalidArgument, message); }

TEST(FlagValuesTest, IntegersAreDigitsInTheirRange) {
  EXPECT_THAT(ParseInteger("--n", "0", 0, 9), IsOkAndHolds(0));
  EXPECT_THAT(ParseInteger("--n", "9", 0, 9), IsOkAndHolds(9));
  for (const char* value : {"10", "-1", "+1", " 1", "1 ", "1.0", "0x1", "two", "", "99999999999999999999"}) {
    EXPECT_THAT(ParseInteger("--n", value, 0, 9),
                IsRefused(absl::StrCat("--n=", value, ": must be an integer from 0 to 9")));
  }
}

TEST(FlagValuesTest, SecondsAreDigitsAndAPoint) {
  EXPECT_THAT(ParseSeconds("--s", "2.5", absl::Seconds(9)), IsOkAndHolds(absl::Milliseconds(2500)));
  EXPECT_THAT(ParseSeconds("--s", ".5", absl::Seconds(9)), IsOkAndHolds(absl::Milliseconds(500)));
  EXPECT_THAT(ParseSeconds("--s", "0", absl::Seconds(9)), IsOkAndHolds(absl::ZeroDuration()));
  for (const char* value : {"-1", "inf", "nan", "1e3", "2s", ".", "1.2.3", "", "9.1"}) {
    EXPECT_THAT(ParseSeconds("--s", value, absl::Seconds(9)),
                IsRefused(absl::StrCat("--s=", value, ": must be a number of seconds from 0 to 9")));
  }
}

TEST(FlagValuesTest, AddressesAreNamesOrNumbers) {
  EXPECT_THAT(ParseAddress("--a", "node-0.example_1"), IsOkAndHolds("node-0.example_1"));
  EXPECT_THAT(ParseAddress("--a", "[fe80::1%eth0]"), IsOkAndHolds("fe80::1%eth0"));
  for (const char* value : {"", "[]", "[::1", "a b", "http://a", "::1:23457", "h:1:2"}) {
    EXPECT_THAT(ParseAddress("--a", value),
                IsRefused(absl::StrCat("--a=", value, ": must be a host name or an address")));
  }
}

TEST(FlagValuesTest, EndpointsAreAHostAndPerhapsAPort) {
  auto is = [](const char* host, std::optional<int> port) {
    return IsOkAndHolds(AllOf(Field(&HostAndPort::host, host), Field(&HostAndPort::port, port)));
  };
  EXPECT_THAT(ParseEndpoint("--e", "node-0:29500"), is("node-0", 29500));
  EXPECT_THAT(ParseEndpoint("--e", "node-0"), is("node-0", std::nullopt));
  EXPECT_THAT(ParseEndpoint("--e", "localhost:0"), is("localhost", std::nullopt));
  EXPECT_THAT(ParseEndpoint("--e", "[::1]:29500"), is("::1", 29500));
  EXPECT_THAT(ParseEndpoint("--e", "[::1]"), is("::1", std::nullopt));
  EXPECT_THAT(ParseEndpoint("--e", "::1"), is("::1", std::nullopt));
  for (const char* value : {"", ":", ":1", "::1:23457", "h:1:2", "node:", "node:http", "node:65536", "node:-1", "[::1",
                            "::1]", "[::1]x:1", "tcp://node:1", "a b:1"}) {
    EXPECT_THAT(ParseEndpoint("--e", value),
                IsRefused(absl::StrCat("--e=", value,
                                       ": must be HOST or HOST:PORT, with a port from 0 to 65535; "
                                       "an IPv6 address as in [::1]:29500")));
  }
}

TEST(FlagValuesTest, NamesCanBePartOfAFilesName) {
  EXPECT_THAT(ParseName("--id", "job-7:a@b+c=d_e.f"), IsOkAndHolds("job-7:a@b+c=d_e.f"));
  for (const std::string& value : {std::string(), std::string("a/b"), std::string("a b"), std::string(129, 'a')}) {
    EXPECT_THAT(ParseName("--id", value),
                IsRefused(absl::StrCat("--id=", value, ": must be 1 to 128 letters, digits and ._:@+=-")));
  }
}

TEST(FlagValuesTest, WhatCannotBePrintedIsEscaped) {
  EXPECT_EQ(BadValue("--x", "a\n\x1b[2J", "nice").message(), "--x=a\\n\\033[2J: must be nice");
  EXPECT_THAT(ParseAddress("--a", std::string("a\0b", 3)), Not(IsOkAndHolds("a")));
}

}  // namespace
}  // namespace cohort::launch
