#include "cohort/tools/launch/status_line.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"
#include "cohort/tools/launch/proc_stat.h"

namespace cohort::launch {
namespace {

constexpr int kUsualColumns = 80;

int Columns(int terminal_fd) {
  winsize size = {};
  return ioctl(terminal_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualColumns;
}

bool MayComeOutElsewhere(int fd) {
  struct stat status;
  return fstat(fd, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

}  // namespace

bool HasPlaceForStatus(int out_fd, int err_fd, const Environment& environment, int num_ranks) {
  const auto term = environment.find("TERM");
  const bool can_erase = term != environment.end() && !term->second.empty() && term->second != "dumb";
  return num_ranks > 1 && can_erase && isatty(err_fd) && !MayComeOutElsewhere(out_fd);
}

bool IsInForeground(pid_t process) {
  const std::optional<ProcStat> stat = ReadProcStat(process);
  return !stat.has_value() || stat->tpgid < 0 || stat->tpgid == stat->pgrp;
}

std::string StatusText(int num_up, int num_ranks, absl::Duration elapsed, int terminal_fd) {
  const int64_t seconds = absl::ToInt64Seconds(elapsed);
  std::string text = absl::StrFormat("launch: %d of %d ranks up, %d:%02d:%02d", num_up, num_ranks, seconds / 3600,
                                     seconds / 60 % 60, seconds % 60);
  // In the last column some terminals begin a new line.
  return text.substr(0, Columns(terminal_fd) - 1);
}

void StatusLine::Update(int num_up) {
  const absl::Duration elapsed = absl::FromChrono(Clock::now() - start_);
  // A job that ends at once does not need it.
  if (!is_drawn_ || elapsed < absl::Seconds(1)) return;
  console_.SetStatus(IsInForeground(front_) ? StatusText(num_up, num_ranks_, elapsed, terminal_fd_) : "");
}

std::optional<absl::Duration> StatusLine::TimeLeft() const {
  if (!is_drawn_) return std::nullopt;
  const absl::Duration elapsed = absl::FromChrono(Clock::now() - start_);
  return absl::Seconds(1) - elapsed % absl::Seconds(1);
}

}  // namespace cohort::launch
