// The rules, for each variable that is set: an integer is decimal digits and nothing else (no sign, no blank, no 0x, no
// exponent), within its range. What is not set:
//
//   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT   none: a world of one. Some: an error, because half an environment
//                                                means that a launcher and a program misunderstand each other.
//                                                WORLD_SIZE=1 meets nobody.
//   LOCAL_RANK        0, as in PyTorch scripts that are started by hand, one process a machine.
//   LOCAL_WORLD_SIZE  WORLD_SIZE if LOCAL_RANK is set: started by hand on one machine. Otherwise 1: a process that was
//                     told nothing about its machine counts itself alone on it, so that rank and size agree with each
//                     other. Launchers set both.

#include "cohort/runtime/rank_info.h"

#include <stdlib.h>

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort {
namespace {

// Tables are made by world size: a typing error must not take the memory.
constexpr int kMaxWorldSize = 1 << 20;
constexpr int kMaxPort = 65535;
constexpr int kMaxRestarts = 1'000'000'000;
constexpr size_t kMaxHostBytes = 255;
constexpr size_t kMaxRunIdBytes = 256;

absl::Status Malformed(std::string_view name, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat("environment variable ", name, "=\"", absl::Utf8SafeCHexEscape(value), "\": allowed is ", allowed));
}

// The value of variable `name`, or `absent` if it is not set.
absl::StatusOr<int> ReadInt(GetEnv get_env, std::string_view name, int min, int max, int absent) {
  std::optional<std::string> value = get_env(name);
  if (!value.has_value()) return absent;
  int64_t number = 0;
  bool is_number =
      !value->empty() && std::ranges::all_of(*value, absl::ascii_isdigit) && absl::SimpleAtoi(*value, &number);
  if (!is_number || number < min || number > max) {
    return Malformed(name, *value,
                     min == max ? absl::StrCat("only ", min) : absl::StrCat("an integer from ", min, " to ", max));
  }
  return static_cast<int>(number);
}

bool IsIpv6Address(std::string_view text) {
  std::string_view number = text.substr(0, text.find('%'));  // a scope may follow
  auto may_be_in_one = [](char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; };
  return std::ranges::count(number, ':') >= 2 && std::ranges::all_of(number, may_be_in_one);
}

bool IsHostName(std::string_view text) {
  auto may_be_in_one = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !text.empty() && text.size() <= kMaxHostBytes && std::ranges::all_of(text, may_be_in_one);
}

absl::StatusOr<std::string> ReadHost(GetEnv get_env, std::string_view name) {
  std::string host = get_env(name).value_or("");
  std::string_view inner = host;
  if (inner.starts_with('[') && inner.ends_with(']')) inner = inner.substr(1, inner.size() - 2);
  if (IsIpv6Address(inner)) return std::string(inner);
  if (IsHostName(host)) return host;
  return Malformed(name, host, "a host name or a numeric address, without a port");
}

absl::StatusOr<bool> ReadBool(GetEnv get_env, std::string_view name) {
  std::optional<std::string> value = get_env(name);
  if (!value.has_value()) return false;
  std::string lower = absl::AsciiStrToLower(*value);
  if (lower == "true" || lower == "1") return true;
  if (lower == "false" || lower == "0") return false;
  return Malformed(name, *value, "True or False");
}

// OK if the variables that go together are all set, or none of them.
absl::StatusOr<bool> IsLaunched(GetEnv get_env) {
  std::vector<std::string_view> needed = {"RANK", "WORLD_SIZE"};
  if (get_env("WORLD_SIZE") != "1") needed.insert(needed.end(), {"MASTER_ADDR", "MASTER_PORT"});
  std::vector<std::string_view> missing;
  for (std::string_view name : needed) {
    if (!get_env(name).has_value()) missing.push_back(name);
  }
  if (missing.empty()) return true;
  if (missing.size() == 4) return false;
  return absl::InvalidArgumentError(absl::StrCat(
      "the environment lacks ", absl::StrJoin(missing, " and "),
      ": RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT go together; none of them means a world of one process"));
}

}  // namespace

absl::StatusOr<RankInfo> ParseRankInfo(GetEnv get_env) {
  RankInfo info;
  ABSL_ASSIGN_OR_RETURN(bool is_launched, IsLaunched(get_env));
  if (is_launched) {
    ABSL_ASSIGN_OR_RETURN(info.world_size, ReadInt(get_env, "WORLD_SIZE", 1, kMaxWorldSize, 1));
    ABSL_ASSIGN_OR_RETURN(info.rank, ReadInt(get_env, "RANK", 0, info.world_size - 1, 0));
  }
  if (info.world_size > 1) {
    ABSL_ASSIGN_OR_RETURN(info.master_addr, ReadHost(get_env, "MASTER_ADDR"));
    ABSL_ASSIGN_OR_RETURN(info.master_port, ReadInt(get_env, "MASTER_PORT", 1, kMaxPort, 0));
  }
  info.has_local_rank = get_env("LOCAL_RANK").has_value();
  int local_world_size = info.has_local_rank ? info.world_size : 1;
  ABSL_ASSIGN_OR_RETURN(info.local_world_size,
                        ReadInt(get_env, "LOCAL_WORLD_SIZE", 1, info.world_size, local_world_size));
  ABSL_ASSIGN_OR_RETURN(info.local_rank, ReadInt(get_env, "LOCAL_RANK", 0, info.local_world_size - 1, 0));
  ABSL_ASSIGN_OR_RETURN(info.restart_count, ReadInt(get_env, "TORCHELASTIC_RESTART_COUNT", 0, kMaxRestarts, 0));
  ABSL_ASSIGN_OR_RETURN(info.use_agent_store, ReadBool(get_env, "TORCHELASTIC_USE_AGENT_STORE"));
  info.run_id = get_env("TORCHELASTIC_RUN_ID").value_or(info.run_id);
  if (info.run_id.size() > kMaxRunIdBytes) {
    return Malformed("TORCHELASTIC_RUN_ID", info.run_id, absl::StrCat("at most ", kMaxRunIdBytes, " bytes"));
  }
  return info;
}

absl::StatusOr<RankInfo> RankInfoFromEnvironment() {
  return ParseRankInfo([](std::string_view name) -> std::optional<std::string> {
    const char* value = getenv(std::string(name).c_str());
    if (value == nullptr) return std::nullopt;
    return value;
  });
}

}  // namespace cohort
