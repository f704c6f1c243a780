// File: flag_values.h
//
// The values that flags and variables have, taken strictly. Every error is InvalidArgument and one line, made to be
// shown to the user: "WHAT=VALUE: must be ...", where `what` is the flag or the variable.

#ifndef COHORT_TOOLS_LAUNCH_FLAG_VALUES_H_
#define COHORT_TOOLS_LAUNCH_FLAG_VALUES_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::launch {

// `allowed` goes on after "must be". What cannot be printed in `value` is escaped.
absl::Status BadValue(std::string_view what, std::string_view value, std::string_view allowed);

// Digits only: no sign, no blank, no suffix.
absl::StatusOr<int> ParseInteger(std::string_view what, std::string_view value, int min, int max);

// Digits and a point, from 0 to `max`.
absl::StatusOr<absl::Duration> ParseSeconds(std::string_view what, std::string_view value, absl::Duration max);

// A host name or a numeric address, returned without the brackets that an IPv6 address may have. Whether it leads
// anywhere is for rank 0 to find out.
absl::StatusOr<std::string> ParseAddress(std::string_view what, std::string_view value);

// HOST, HOST:PORT, [IPV6]:PORT, [IPV6], IPV6. Port 0 is none: any that is free.
struct HostAndPort {
  std::string host;
  std::optional<int> port;
};
absl::StatusOr<HostAndPort> ParseEndpoint(std::string_view what, std::string_view value);

// A TCP port, 1 to 65535.
absl::StatusOr<int> ParsePort(std::string_view what, std::string_view value);

// What a job or a role may be called: 1 to 128 letters, digits and "._:@+=-" (it becomes part of a file's name).
absl::StatusOr<std::string> ParseName(std::string_view what, std::string_view value);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_FLAG_VALUES_H_
