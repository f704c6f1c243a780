#include "cohort/checkpoint/internal/quoted.h"

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {

std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 400;
  if (name.size() <= kShown) return absl::StrCat("\"", absl::Utf8SafeCEscape(name), "\"");
  return absl::StrCat("\"", absl::Utf8SafeCEscape(name.substr(0, kShown)), "...\" (", name.size(), " bytes)");
}

}  // namespace cohort::internal
