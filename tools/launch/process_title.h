// File: process_title.h

#ifndef COHORT_TOOLS_LAUNCH_PROCESS_TITLE_H_
#define COHORT_TOOLS_LAUNCH_PROCESS_TITLE_H_

#include <string_view>

namespace cohort::launch {

// What ps, pkill and killall take this process for from now on: `name`, of which 15 letters count, and in place of the
// command line `name` and `rest`, as much as fits. `argv` is main()'s; its strings are overwritten.
void SetProcessTitle(char** argv, std::string_view name, std::string_view rest);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_PROCESS_TITLE_H_
