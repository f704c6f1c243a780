#include "cohort/checkpoint/internal/utc_time.h"

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

absl::Time At(absl::CivilSecond civil) { return absl::FromCivil(civil, absl::UTCTimeZone()); }

TEST(UtcTimeTest, IsWrittenInUtc) {
  const absl::Time time = At(absl::CivilSecond(2026, 12, 2, 10, 5, 7)) + absl::Nanoseconds(123456999);
  EXPECT_EQ(UtcMicrosecondsText(time), "2026-12-02T10:05:07.123456Z");
  EXPECT_EQ(UtcSecondsText(time), "2026-12-02T10:05:07Z");
  EXPECT_EQ(UtcMicrosecondsText(absl::UnixEpoch() - absl::Microseconds(1)), "1969-12-31T23:59:59.999999Z");
}

TEST(UtcTimeTest, WhatHasNoTextIsTheNearestThatHas) {
  EXPECT_EQ(UtcMicrosecondsText(absl::InfiniteFuture()), "9999-12-31T23:59:59.999999Z");
  EXPECT_EQ(UtcMicrosecondsText(absl::InfinitePast()), "0000-01-01T00:00:00.000000Z");
}

TEST(UtcTimeTest, IsReadBackExactlyAndAsAbseilReadsIt) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  const int64_t first = absl::ToUnixMicros(At(absl::CivilSecond(0)));
  const int64_t last = absl::ToUnixMicros(At(absl::CivilSecond(9999, 12, 31, 23, 59, 59)));
  for (int i = 0; i < 5000; ++i) {
    const absl::Time time = absl::FromUnixMicros(std::uniform_int_distribution<int64_t>(first, last)(random));
    const std::string text = UtcMicrosecondsText(time);
    ASSERT_EQ(ParseUtcTime(text), time) << text;
    absl::Time of_abseil;
    std::string error;
    ASSERT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &of_abseil, &error)) << text << ": " << error;
    ASSERT_EQ(of_abseil, time) << text;
    ASSERT_EQ(ParseUtcTime(UtcSecondsText(time)), absl::FromUnixSeconds(absl::ToUnixSeconds(time)));
  }
}

TEST(UtcTimeTest, NoOtherFormIsRead) {
  for (const std::string_view text : {"",
                                      "Z",
                                      "2026-12-02",
                                      "2026-12-02T10:00:00",
                                      "2026-12-02T10:00:00.1Z",
                                      "2026-12-02T10:00:00.1234567Z",
                                      "2026-12-02t10:00:00Z",
                                      "2026-12-02T10:00:00z",
                                      "2026-12-02 10:00:00Z",
                                      "2026-12-02T10:00:00+00:00",
                                      "2026-13-02T10:00:00Z",
                                      "2026-00-02T10:00:00Z",
                                      "2026-02-29T10:00:00Z",
                                      "2026-12-00T10:00:00Z",
                                      "2026-12-02T24:00:00Z",
                                      "2026-12-02T10:60:00Z",
                                      "2026-12-02T10:00:60Z",
                                      "-026-12-02T10:00:00Z",
                                      "20 6-12-02T10:00:00Z",
                                      "2026-12-02T10:00:00,123456Z",
                                      "2026-12-02T10:00:00.12345 Z"}) {
    EXPECT_EQ(ParseUtcTime(text), std::nullopt) << text;
  }
  EXPECT_TRUE(ParseUtcTime("2028-02-29T10:00:00Z").has_value());
}

}  // namespace
}  // namespace cohort::internal
