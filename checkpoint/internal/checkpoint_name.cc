#include "cohort/checkpoint/internal/checkpoint_name.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace cohort::internal {
namespace {

// Takes the digits at the beginning of `text`.
std::string_view ConsumeDigits(std::string_view& text) {
  size_t size = 0;
  while (size < text.size() && absl::ascii_isdigit(text[size])) ++size;
  const std::string_view digits = text.substr(0, size);
  text.remove_prefix(size);
  return digits;
}

}  // namespace

std::string CheckpointName(int64_t step, int attempt) {
  const std::string name = absl::StrFormat("%s%08d", kCheckpointPrefix, step);
  return attempt <= 1 ? name : absl::StrCat(name, "-", attempt);
}

std::optional<int64_t> ParseCheckpointName(std::string_view name) {
  if (!absl::ConsumePrefix(&name, kCheckpointPrefix)) return std::nullopt;
  const std::string_view digits = ConsumeDigits(name);
  if (digits.empty()) return std::nullopt;
  int64_t step = 0;
  for (const char digit : digits) {
    const int64_t value = digit - '0';
    if (step > (std::numeric_limits<int64_t>::max() - value) / 10) return std::nullopt;
    step = step * 10 + value;
  }
  if (name.empty()) return step;
  if (!absl::ConsumePrefix(&name, "-") || ConsumeDigits(name).empty() || !name.empty()) return std::nullopt;
  return step;
}

}  // namespace cohort::internal
