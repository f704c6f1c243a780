#include "cohort/checkpoint/internal/json_version.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort::internal {

absl::Status CheckJsonVersion(std::string_view json, int64_t version) {
  constexpr std::string_view kBegin = "{\"version\": ";
  constexpr size_t kMaxDigits = 18;
  std::string_view rest = json;
  size_t size = 0;
  if (absl::ConsumePrefix(&rest, kBegin)) {
    while (size < rest.size() && absl::ascii_isdigit(rest[size])) ++size;
  }
  int64_t found = 0;
  if (size == 0 || size > kMaxDigits || size == rest.size() || rest[size] != ',' ||
      !absl::SimpleAtoi(rest.substr(0, size), &found)) {
    return absl::InvalidArgumentError(absl::StrCat("it begins with ", Quoted(json.substr(0, 20)), ", and must with ",
                                                   Quoted(absl::StrCat(kBegin, version, ","))));
  }
  if (found == version) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("it is of version ", found, "; this cohort reads version ", version));
}

}  // namespace cohort::internal
