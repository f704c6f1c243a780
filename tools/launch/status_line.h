// File: status_line.h
//
// What stands below the output while a job runs at a terminal: how many ranks are up, and for how long.

#ifndef COHORT_TOOLS_LAUNCH_STATUS_LINE_H_
#define COHORT_TOOLS_LAUNCH_STATUS_LINE_H_

#include <string>

#include "absl/time/time.h"
#include "cohort/tools/launch/environment.h"

namespace cohort::launch {

// Whether there is a place for it: `err_fd` is a terminal that can erase a line, and nothing else is printed there that
// does not go through us. (What goes into a pipe may come out at the same terminal: `launch ... | tee log`.) A lone rank
// has none: its output is as without a launcher.
bool HasPlaceForStatus(int out_fd, int err_fd, const Environment& environment, int num_ranks);

// Whether `terminal_fd` is ours to draw on now: this process is not in the background. True if that cannot be told.
bool IsInForeground(int terminal_fd);

// "launch: 3 of 4 ranks up, 1:02:03", cut so that it fits into one line of the terminal.
std::string StatusText(int num_up, int num_ranks, absl::Duration elapsed, int terminal_fd);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_STATUS_LINE_H_
