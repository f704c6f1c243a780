#include "cohort/tools/ckpt/text.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cohort::ckpt {
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

size_t NumCharacters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace

std::string Printable(std::string_view text) { return Escaped(text, false); }

std::string QuotedText(std::string_view text) { return absl::StrCat("\"", Escaped(text, true), "\""); }

std::string NameText(std::string_view name) {
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isgraph(c) && c != '"' && c != '\\';
  });
  return is_plain ? std::string(name) : QuotedText(name);
}

std::string Shortened(std::string_view text) {
  constexpr size_t kLongest = 400;
  constexpr size_t kShown = 200;
  if (text.size() <= kLongest) return std::string(text);
  size_t end = kShown;
  while ((static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "... (", text.size(), " bytes)");
}

std::string FloatText(double value) {
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  const auto bits = std::bit_cast<uint64_t>(value);
  if (bits == std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN())) return "nan";
  if (std::isnan(value)) return absl::StrFormat("nan (0x%016x)", bits);
  char buffer[32];  // the shortest form that reads back as the same has at most 24 characters
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string BytesText(int64_t num_bytes) {
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (num_bytes < 1024) return absl::StrCat(num_bytes, num_bytes == 1 ? " byte" : " bytes");
  double number = static_cast<double>(num_bytes) / 1024;
  size_t unit = 0;
  for (; number >= 1023.95 && unit + 1 < std::size(kUnits); ++unit) number /= 1024;
  return absl::StrFormat("%.1f %s", number, kUnits[unit]);
}

std::string Table::Text(std::string_view indent) const {
  // One long name must not push everybody's numbers out of sight.
  constexpr size_t kWidest = 80;
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], std::min(kWidest, NumCharacters(row[i])));
    }
  }
  std::string out;
  for (const auto& row : rows_) {
    out += indent;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool is_right = std::find(right_aligned_.begin(), right_aligned_.end(), i) != right_aligned_.end();
      const std::string blanks(widths[i] - std::min(widths[i], NumCharacters(row[i])), ' ');
      if (i > 0) out += "  ";
      if (is_right) out += blanks;
      out += row[i];
      if (!is_right && i + 1 < row.size()) out += blanks;
    }
    out += '\n';
  }
  return out;
}

}  // namespace cohort::ckpt
