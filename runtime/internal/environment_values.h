// File: environment_values.h
//
// Values of environment variables, each checked against what it may be. An error names the variable, its value and what
// is allowed.

#ifndef COHORT_RUNTIME_INTERNAL_ENVIRONMENT_VALUES_H_
#define COHORT_RUNTIME_INTERNAL_ENVIRONMENT_VALUES_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cohort::internal {

// Returns the value of an environment variable, or nullopt if it is not set.
using GetVariable = absl::FunctionRef<std::optional<std::string>(std::string_view name)>;

// Tables are made by world size: a typing error must not take the memory.
inline constexpr int kMaxWorldSize = 1 << 20;
inline constexpr int kMaxPort = 65535;
inline constexpr int kMaxRestarts = 1'000'000'000;
inline constexpr size_t kMaxRunIdBytes = 256;

// InvalidArgument: `name` has `value`, and `allowed` says in words what it may have.
absl::Status MalformedVariable(std::string_view name, std::string_view value, std::string_view allowed);

// InvalidArgument: these are not set; `why` says why they are needed. `missing` must not be empty.
absl::Status MissingVariables(absl::Span<const std::string_view> missing, std::string_view why);

// The first of `names` that is set, or the first one: the name under which this version of a launcher gives a value.
std::string_view FirstThatIsSet(GetVariable get, std::initializer_list<std::string_view> names);

// Those of `names` that are not set.
std::vector<std::string_view> ThoseNotSet(GetVariable get, absl::Span<const std::string_view> names);

// `text` as a number, if it is decimal digits and nothing else: no sign, no blank, no 0x, no exponent.
std::optional<int64_t> ParseDigits(std::string_view text);

// A number of digits within the range; `absent` if the variable is not set. The second one is for what must be set.
absl::StatusOr<int> ReadInt(GetVariable get, std::string_view name, int min, int max, int absent);
absl::StatusOr<int64_t> ReadNumber(GetVariable get, std::string_view name, int64_t min, int64_t max);

// "True" or "False", as Python writes it, or 1 or 0; false if the variable is not set.
absl::StatusOr<bool> ReadBool(GetVariable get, std::string_view name);

// A host name, or an address without its brackets.
absl::StatusOr<std::string> ReadHost(GetVariable get, std::string_view name);
bool IsHostName(std::string_view text);

// A job's name; `absent` if the variable is not set.
absl::StatusOr<std::string> ReadRunId(GetVariable get, std::string_view name, std::string_view absent);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_ENVIRONMENT_VALUES_H_
