#include "cohort/runtime/internal/environment_values.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::internal {
namespace {

constexpr size_t kMaxHostBytes = 255;
// Of a value in an error. A node list may have a hundred kilobytes.
constexpr size_t kMaxShownBytes = 300;

std::string RangeText(int64_t min, int64_t max) {
  return min == max ? absl::StrCat("only ", min) : absl::StrCat("an integer from ", min, " to ", max);
}

bool IsIpv6Address(std::string_view text) {
  const std::string_view number = text.substr(0, text.find('%'));  // a scope may follow
  const auto may_be_in_one = [](char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; };
  return std::ranges::count(number, ':') >= 2 && std::ranges::all_of(number, may_be_in_one);
}

}  // namespace

absl::Status MalformedVariable(std::string_view name, std::string_view value, std::string_view allowed) {
  const std::string shown = absl::Utf8SafeCHexEscape(value.substr(0, kMaxShownBytes));
  return absl::InvalidArgumentError(absl::StrCat("environment variable ", name, "=\"", shown,
                                                 value.size() > kMaxShownBytes ? "..." : "", "\": allowed is ",
                                                 allowed));
}

absl::Status MissingVariables(absl::Span<const std::string_view> missing, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("the environment lacks ", absl::StrJoin(missing, " and "), ": ", why));
}

std::string_view FirstThatIsSet(GetVariable get, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (get(name).has_value()) return name;
  }
  return *names.begin();
}

std::vector<std::string_view> ThoseNotSet(GetVariable get, absl::Span<const std::string_view> names) {
  std::vector<std::string_view> missing;
  for (const std::string_view name : names) {
    if (!get(name).has_value()) missing.push_back(name);
  }
  return missing;
}

std::optional<int64_t> ParseDigits(std::string_view text) {
  int64_t number = 0;
  if (text.empty() || !std::ranges::all_of(text, absl::ascii_isdigit) || !absl::SimpleAtoi(text, &number)) {
    return std::nullopt;
  }
  return number;
}

absl::StatusOr<int64_t> ReadNumber(GetVariable get, std::string_view name, int64_t min, int64_t max) {
  const std::string value = get(name).value_or("");
  const std::optional<int64_t> number = ParseDigits(value);
  if (!number.has_value() || *number < min || *number > max) {
    return MalformedVariable(name, value, RangeText(min, max));
  }
  return *number;
}

absl::StatusOr<int> ReadInt(GetVariable get, std::string_view name, int min, int max, int absent) {
  if (!get(name).has_value()) return absent;
  const absl::StatusOr<int64_t> number = ReadNumber(get, name, min, max);
  if (!number.ok()) return number.status();
  return static_cast<int>(*number);
}

absl::StatusOr<bool> ReadBool(GetVariable get, std::string_view name) {
  const std::optional<std::string> value = get(name);
  if (!value.has_value()) return false;
  const std::string lower = absl::AsciiStrToLower(*value);
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return MalformedVariable(name, *value, "True or False");
}

bool IsHostName(std::string_view text) {
  const auto may_be_in_one = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !text.empty() && text.size() <= kMaxHostBytes && std::ranges::all_of(text, may_be_in_one);
}

absl::StatusOr<std::string> ReadHost(GetVariable get, std::string_view name) {
  const std::string host = get(name).value_or("");
  std::string_view inner = host;
  if (inner.starts_with('[') && inner.ends_with(']')) inner = inner.substr(1, inner.size() - 2);
  if (IsIpv6Address(inner)) return std::string(inner);
  if (IsHostName(host)) return host;
  return MalformedVariable(name, host, "a host name or a numeric address, without a port");
}

absl::StatusOr<std::string> ReadRunId(GetVariable get, std::string_view name, std::string_view absent) {
  std::string run_id = get(name).value_or(std::string(absent));
  if (run_id.size() > kMaxRunIdBytes) {
    return MalformedVariable(name, run_id, absl::StrCat("at most ", kMaxRunIdBytes, " bytes"));
  }
  return run_id;
}

}  // namespace cohort::internal
