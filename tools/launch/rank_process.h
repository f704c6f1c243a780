// File: rank_process.h

#ifndef COHORT_TOOLS_LAUNCH_RANK_PROCESS_H_
#define COHORT_TOOLS_LAUNCH_RANK_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// What to start.
struct RankCommand {
  // The program, looked for on PATH if it has no slash, and its arguments.
  std::vector<std::string> arguments;
  // "NAME=value", all of it.
  std::vector<std::string> environment;
  // Becomes standard input; stays the caller's.
  int stdin_fd = -1;
};

// A process that was started: the leader of a process group of its own, with the same number. It has no signal blocked,
// and dies with SIGKILL if the thread that started it ends.
struct RankProcess {
  pid_t pid = -1;
  // Readable once the process has ended. Empty where the kernel has no such thing (before Linux 5.3).
  UniqueFd exited;
  // Hangs up when the process begins to close its files because it ends, before any other file is closed that somebody
  // could notice; or later, or never, if the process has interfered with descriptors that it does not know.
  UniqueFd lifeline;
  // The reading ends of its standard output and standard error; reads do not block.
  UniqueFd out;
  UniqueFd err;
};

// Starts a process; returns when it runs the program or has failed to. The caller must have no other thread, must hold
// descriptors 0, 1 and 2 open, and must wait for the child.
//
// Errors (nothing is left running):
//   NotFound             there is no such program.
//   FailedPrecondition   the program exists and cannot be executed.
//   ResourceExhausted, Internal, ...  the system refuses a process or a pipe; the code is that of the errno.
absl::StatusOr<RankProcess> StartRank(const RankCommand& command);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_RANK_PROCESS_H_
