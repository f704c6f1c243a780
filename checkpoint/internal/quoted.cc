#include "cohort/checkpoint/internal/quoted.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::internal {
namespace {

struct Character {
  uint32_t code = 0;
  size_t num_bytes = 0;  // 0: not UTF-8
};

// The first character of `text`, which is not empty.
Character Decode(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xC2 || first > 0xF4 || text.size() < size) return {};
  uint32_t code = first & (0xFF >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  if (code < kSmallest[size] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {code, size};
}

// Moves the cursor, starts an escape sequence, turns the writing direction, or is not seen.
bool IsTreacherous(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kRanges[] = {{0, 0x1F},        {0x7F, 0x9F},     {0xAD, 0xAD},      {0x61C, 0x61C},
                               {0x180E, 0x180E}, {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F},
                               {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}, {0xE0000, 0xE0FFF}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const Range& range) { return code >= range.first && code <= range.last; });
}

std::string Escaped(std::string_view text, bool in_quotes) {
  std::string out;
  while (!text.empty()) {
    const Character c = Decode(text);
    if (c.num_bytes == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", static_cast<uint8_t>(text[0]));
    } else if (in_quotes && (c.code == '"' || c.code == '\\')) {
      absl::StrAppend(&out, "\\", text.substr(0, 1));
    } else if (!IsTreacherous(c.code)) {
      out += text.substr(0, c.num_bytes);
    } else if (c.code == '\n') {
      out += "\\n";
    } else if (c.code == '\t') {
      out += "\\t";
    } else if (c.code < 0x80) {
      absl::StrAppendFormat(&out, "\\x%02x", c.code);
    } else {
      absl::StrAppendFormat(&out, "\\u{%x}", c.code);
    }
    text.remove_prefix(std::max<size_t>(c.num_bytes, 1));
  }
  return out;
}

}  // namespace

std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 400;
  if (name.size() <= kShown) return absl::StrCat("\"", Escaped(name, true), "\"");
  size_t end = kShown;
  while (end > kShown - 3 && (static_cast<uint8_t>(name[end]) & 0xC0) == 0x80) --end;  // not within a character
  return absl::StrCat("\"", Escaped(name.substr(0, end), true), "...\" (", name.size(), " bytes)");
}

std::string Printable(std::string_view text) { return Escaped(text, false); }

}  // namespace cohort::internal
