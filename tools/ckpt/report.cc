#include "cohort/tools/ckpt/report.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cohort/tools/ckpt/commands.h"

namespace cohort::ckpt {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Characters as a terminal shows them: bytes that go on with one are not counted.
size_t Width(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

int Report(const absl::Status& error) {
  absl::FPrintF(stderr, "ckpt: %s: %s\n", absl::StatusCodeToString(error.code()), error.message());
  return absl::IsInvalidArgument(error) || absl::IsDataLoss(error) || absl::IsUnimplemented(error) ? kBad : kTrouble;
}

std::string Printable(std::string_view text) {
  // Escapes quotes as well, which need none here.
  std::string escaped;
  for (const char c : absl::Utf8SafeCEscape(text)) {
    const bool after_backslash = !escaped.empty() && escaped.back() == '\\' && (c == '"' || c == '\'');
    if (after_backslash) escaped.pop_back();
    escaped.push_back(c);
  }
  return escaped;
}

std::string Shape(const std::vector<int64_t>& sizes) { return absl::StrCat("[", absl::StrJoin(sizes, ", "), "]"); }

std::string Size(int64_t num_bytes) {
  if (num_bytes < 1024) return absl::StrCat(num_bytes, " bytes");
  double size = static_cast<double>(num_bytes) / 1024;
  size_t unit = 0;
  constexpr std::string_view kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return absl::StrFormat("%.1f %s", size, kUnits[unit]);
}

void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const std::vector<std::string>& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  for (const std::vector<std::string>& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      absl::StrAppend(&line, row[i]);
      if (i + 1 < row.size()) line.append(widths[i] - Width(row[i]) + 2, ' ');
    }
    absl::PrintF("%s\n", line);
  }
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)), is_terminal_(isatty(STDERR_FILENO) != 0), start_ns_(Now()) {}

ProgressBar::~ProgressBar() {
  if (shown_ns_ != 0) std::fputs("\r\033[K", stderr);
}

void ProgressBar::Update(int64_t done, int64_t total) {
  const int64_t now = Now();
  if (!is_terminal_ || total <= 0 || now - start_ns_ < kSecond || now - shown_ns_ < kSecond / 10) return;
  shown_ns_ = now;
  constexpr int kWidth = 30;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
  const int full = static_cast<int>(share * kWidth);
  absl::FPrintF(stderr, "\r\033[K%s [%s%s] %3d%%  %s of %s", what_, std::string(full, '#'), std::string(kWidth - full, ' '),
                static_cast<int>(share * 100), Size(done), Size(total));
}

}  // namespace cohort::ckpt
