// By hand: absl::ParseTime, which takes any format, is ten times as slow, and a run may have 10,000 checkpoints.

#include "cohort/checkpoint/internal/utc_time.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"

namespace cohort::internal {
namespace {

constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:dd.ddddddZ";
constexpr size_t kSecondsEnd = 19;  // in `kForm`

int64_t Number(std::string_view digits) {
  int64_t number = 0;
  for (const char digit : digits) number = number * 10 + (digit - '0');
  return number;
}

// `time`, or the nearest one that has a text.
absl::Time Within(absl::Time time) {
  static const absl::Time kFirst = absl::FromCivil(absl::CivilYear(0), absl::UTCTimeZone());
  static const absl::Time kLast = absl::FromCivil(absl::CivilYear(10000), absl::UTCTimeZone()) - absl::Nanoseconds(1);
  return std::clamp(time, kFirst, kLast);
}

std::string SecondsText(absl::Time time) {
  const absl::CivilSecond civil = absl::ToCivilSecond(time, absl::UTCTimeZone());
  return absl::StrFormat("%04d-%02d-%02dT%02d:%02d:%02d", civil.year(), civil.month(), civil.day(), civil.hour(),
                         civil.minute(), civil.second());
}

}  // namespace

std::string UtcMicrosecondsText(absl::Time time) {
  time = Within(time);
  const int64_t micros = absl::ToUnixMicros(time);  // rounds down, before 1970 as well
  return absl::StrFormat("%s.%06dZ", SecondsText(time), (micros % 1000000 + 1000000) % 1000000);
}

std::string UtcSecondsText(absl::Time time) { return SecondsText(Within(time)) + "Z"; }

std::optional<absl::Time> ParseUtcTime(std::string_view text) {
  const bool has_fraction = text.size() == kForm.size();
  if (!has_fraction && text.size() != kSecondsEnd + 1) return std::nullopt;
  if (text.back() != 'Z') return std::nullopt;
  for (size_t i = 0; i + 1 < text.size(); ++i) {
    if (kForm[i] == 'd' ? !absl::ascii_isdigit(text[i]) : text[i] != kForm[i]) return std::nullopt;
  }
  const auto number = [&](size_t begin, size_t size) { return Number(text.substr(begin, size)); };
  const absl::CivilSecond civil(number(0, 4), number(5, 2), number(8, 2), number(11, 2), number(14, 2), number(17, 2));
  // It makes 1 March of 29 February where there is none.
  if (civil.month() != number(5, 2) || civil.day() != number(8, 2) || civil.hour() != number(11, 2) ||
      civil.minute() != number(14, 2) || civil.second() != number(17, 2)) {
    return std::nullopt;
  }
  const int64_t micros = has_fraction ? number(kSecondsEnd + 1, 6) : 0;
  static const absl::CivilSecond kEpoch(1970);
  return absl::FromUnixMicros((civil - kEpoch) * 1000000 + micros);
}

}  // namespace cohort::internal
