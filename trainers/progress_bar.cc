#include "cohort/trainers/progress_bar.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

constexpr int64_t kWidth = 30;
constexpr std::chrono::milliseconds kAtMostEvery(100);

}  // namespace

std::string ProgressLine(std::string_view label, int64_t done, int64_t all) {
  const double share = all > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(all), 0.0, 1.0) : 0;
  const auto filled = static_cast<size_t>(share * kWidth);
  return absl::StrCat(label, " [", std::string(filled, '='), std::string(kWidth - filled, ' '), "] ", done, "/", all);
}

void ProgressBar::Show(std::string_view label, int64_t done, int64_t all) {
  if (!is_on_) return;
  const auto now = std::chrono::steady_clock::now();
  if (is_shown_ && now < last_ + kAtMostEvery) return;
  std::fprintf(out_, "\r\033[K%s", ProgressLine(label, done, all).c_str());
  std::fflush(out_);
  is_shown_ = true;
  last_ = now;
}

void ProgressBar::Clear() {
  if (!is_shown_) return;
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
  is_shown_ = false;
}

}  // namespace cohort
