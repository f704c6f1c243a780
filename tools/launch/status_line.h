// File: status_line.h
//
// What stands below the output while a job runs at a terminal: how many ranks are up, and for how long.

#ifndef COHORT_TOOLS_LAUNCH_STATUS_LINE_H_
#define COHORT_TOOLS_LAUNCH_STATUS_LINE_H_

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "cohort/tools/launch/console.h"
#include "cohort/tools/launch/environment.h"

namespace cohort::launch {

// Whether there is a place for it: `err_fd` is a terminal that can erase a line, and nothing else is printed there that
// does not go through us. (What goes into a pipe may come out at the same terminal: `launch ... | tee log`.) A lone
// rank has none: its output is as without a launcher.
bool HasPlaceForStatus(int out_fd, int err_fd, const Environment& environment, int num_ranks);

// Whether `process` is not in the background of the terminal that it was started at. True if it was started at none.
bool IsInForeground(pid_t process);

// "launch: 3 of 4 ranks up, 1:02:03", cut so that it fits into one line of the terminal.
std::string StatusText(int num_up, int num_ranks, absl::Duration elapsed, int terminal_fd);

// Draws it, if there is a place, from a second after the start on and once a second.
class StatusLine {
 public:
  // `console` must outlive this. `front` is the process that a person started: it is not drawn while that is in the
  // background.
  StatusLine(Console& console, pid_t front, const Environment& environment, int num_ranks)
      : console_(console),
        front_(front),
        terminal_fd_(console.files().back()->poll_fd()),
        num_ranks_(num_ranks),
        is_drawn_(HasPlaceForStatus(console.files().front()->poll_fd(), terminal_fd_, environment, num_ranks)) {}

  // To be called whenever the caller wakes up, and at the latest when TimeLeft() is over. The console draws it when it
  // is flushed.
  void Update(int num_up);

  // Takes it away, until the next Update().
  void Clear() { console_.SetStatus(""); }

  // Until the next Update() is due; nullopt if none ever is.
  std::optional<absl::Duration> TimeLeft() const;

 private:
  using Clock = std::chrono::steady_clock;

  Console& console_;
  pid_t front_;
  int terminal_fd_;
  int num_ranks_;
  bool is_drawn_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_STATUS_LINE_H_
