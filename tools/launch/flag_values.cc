#include "cohort/tools/launch/flag_values.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cohort::launch {
namespace {

constexpr int kMaxPort = 65535;
constexpr size_t kMaxNameBytes = 128;

bool IsMadeOf(std::string_view value, std::string_view more_than_letters_and_digits) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [&](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains(more_than_letters_and_digits, c);
  });
}

// With or without a zone, as in fe80::1%eth0.
bool IsIpv6(std::string_view address) {
  in6_addr parsed;
  return inet_pton(AF_INET6, std::string(address.substr(0, address.find('%'))).c_str(), &parsed) == 1;
}

}  // namespace

absl::Status BadValue(std::string_view what, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(what, "=", absl::Utf8SafeCEscape(value), ": must be ", allowed));
}

absl::StatusOr<int> ParseInteger(std::string_view what, std::string_view value, int min, int max) {
  int number = 0;
  const bool is_digits = !value.empty() && std::all_of(value.begin(), value.end(), absl::ascii_isdigit);
  if (!is_digits || !absl::SimpleAtoi(value, &number) || number < min || number > max) {
    return BadValue(what, value, absl::StrCat("an integer from ", min, " to ", max));
  }
  return number;
}

absl::StatusOr<absl::Duration> ParseSeconds(std::string_view what, std::string_view value, absl::Duration max) {
  double seconds = 0;
  const bool is_decimal = value.find_first_not_of("0123456789.") == std::string_view::npos;
  if (!is_decimal || !absl::SimpleAtod(value, &seconds) || seconds > absl::ToDoubleSeconds(max)) {
    return BadValue(what, value, absl::StrCat("a number of seconds from 0 to ", absl::ToInt64Seconds(max)));
  }
  return absl::Seconds(seconds);
}

absl::StatusOr<std::string> ParseAddress(std::string_view what, std::string_view value) {
  std::string_view address = value;
  if (absl::ConsumePrefix(&address, "[") && !absl::ConsumeSuffix(&address, "]")) address = "";
  if (!IsMadeOf(address, ".-_:%") || (absl::StrContains(address, ':') && !IsIpv6(address))) {
    return BadValue(what, value, "a host name or an address");
  }
  return std::string(address);
}

absl::StatusOr<HostAndPort> ParseEndpoint(std::string_view what, std::string_view value) {
  std::string_view host = value;
  std::string_view port;
  const size_t colon = value.rfind(':');
  const bool is_bare_ipv6 = !absl::StartsWith(value, "[") && value.find(':') != colon;
  const bool has_port = colon != std::string_view::npos && !is_bare_ipv6 && !absl::EndsWith(value, "]");
  if (has_port) {
    host = value.substr(0, colon);
    port = value.substr(colon + 1);
  }
  const absl::StatusOr<std::string> address = ParseAddress(what, host);
  const absl::StatusOr<int> number = has_port ? ParseInteger(what, port, 0, kMaxPort) : 0;
  if (!address.ok() || !number.ok()) {
    return BadValue(what, value, "HOST or HOST:PORT, with a port from 0 to 65535; an IPv6 address as in [::1]:29500");
  }
  HostAndPort endpoint = {.host = *address};
  if (*number != 0) endpoint.port = *number;
  return endpoint;
}

absl::StatusOr<int> ParsePort(std::string_view what, std::string_view value) {
  return ParseInteger(what, value, 1, kMaxPort);
}

absl::StatusOr<std::string> ParseName(std::string_view what, std::string_view value) {
  if (!IsMadeOf(value, "._:@+=-") || value.size() > kMaxNameBytes) {
    return BadValue(what, value, absl::StrCat("1 to ", kMaxNameBytes, " letters, digits and ._:@+=-"));
  }
  return std::string(value);
}

}  // namespace cohort::launch
