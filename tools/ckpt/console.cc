#include "cohort/tools/ckpt/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/tools/ckpt/text.h"

namespace cohort::ckpt {
namespace {

// Of standard output: errno of the first error.
int output_error = 0;

// Writes to a descriptor until all is written; returns 0 or errno.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(written);
  }
  return 0;
}

}  // namespace

void Print(std::string_view text) {
  if (output_error == 0) output_error = WriteAll(STDOUT_FILENO, text);
}

absl::Status OutputError() {
  if (output_error == 0 || output_error == EPIPE) return absl::OkStatus();
  return absl::ErrnoToStatus(output_error, "write standard output");
}

void Complain(std::string_view message) {
  WriteAll(STDERR_FILENO, absl::StrCat("ckpt: ", internal::Printable(message), "\n"));
}

ProgressBar::ProgressBar(std::string what)
    : what_(std::move(what)),
      is_wanted_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + std::chrono::seconds(1)) {}

ProgressBar::~ProgressBar() {
  if (is_shown_) WriteAll(STDERR_FILENO, "\r\033[K");
}

void ProgressBar::Show(int64_t done, int64_t total) {
  if (!is_wanted_ || total <= 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  is_shown_ = true;
  constexpr int kWidth = 30;
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  const int full = static_cast<int>(share * kWidth);
  WriteAll(STDERR_FILENO,
           absl::StrFormat("\r\033[K%s [%s%s] %3d%% of %s", what_, std::string(full, '#'),
                           std::string(kWidth - full, ' '), static_cast<int>(share * 100), BytesText(total)));
}

}  // namespace cohort::ckpt
