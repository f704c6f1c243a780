#include "cohort/tools/launch/output_tail.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cohort::launch {
namespace {

constexpr size_t kRememberedBytes = 8192;
constexpr size_t kMaxLineBytes = 512;  // in a report

std::string EndOf(std::string_view line) {
  if (line.size() <= kMaxLineBytes) return std::string(line);
  return absl::StrCat("...", line.substr(line.size() - kMaxLineBytes));
}

}  // namespace

void OutputTail::Add(std::string_view bytes) {
  bytes_.append(bytes.substr(bytes.size() - std::min(bytes.size(), kRememberedBytes)));
  // Twice as much may gather, so that a stream of short writes is not moved by one line at a time.
  if (bytes_.size() > 2 * kRememberedBytes) bytes_.erase(0, bytes_.size() - kRememberedBytes);
}

std::vector<std::string> OutputTail::LastLines(int max_lines) const {
  std::string_view remembered = bytes_;
  remembered.remove_prefix(remembered.size() - std::min(remembered.size(), kRememberedBytes));
  absl::ConsumeSuffix(&remembered, "\n");
  if (remembered.empty()) return {};
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(remembered, '\n')) lines.push_back(EndOf(line));
  if (lines.size() > static_cast<size_t>(max_lines)) lines.erase(lines.begin(), lines.end() - max_lines);
  return lines;
}

}  // namespace cohort::launch
