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
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort::ckpt {
namespace {

size_t NumCharacters(std::string_view utf8) {
  return std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

}  // namespace

std::string NameText(std::string_view name) {
  const bool is_plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isgraph(c) && c != '"' && c != '\\';
  });
  return is_plain ? std::string(name) : internal::Quoted(name);
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
