// File: supervisor_process.h

#ifndef COHORT_TOOLS_LAUNCH_SUPERVISOR_PROCESS_H_
#define COHORT_TOOLS_LAUNCH_SUPERVISOR_PROCESS_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/front_link.h"

namespace cohort::launch {

// Runs `body`, which starts the ranks, in a child process of its own session, so that each of the two clears up if the
// other is killed: nothing that was started survives either of them. Returns the exit code of `body`. To be called
// first of all: this process must have no thread, no child and nothing buffered.
//
// The process that a person started stays in front. It tells the other one of each signal that it gets (those of
// SignalReader), passes on what is typed at the terminal as standard input, and is suspended with the other one. `body`
// gets the link to it, on which its death is heard as well: `body` should then KillDescendants() and return. Signals
// that are sent to the process of `body` have no effect on it once it reads with SignalReader::OpenForChildren().
//
// A request to stop (IsStopRequest) is a promise to end: if `body` has not returned `patience` later (its process hangs in the
// kernel, or was suspended), its process is killed.
//
// Errors: Internal, ResourceExhausted (no pipe or no process; nothing has been started), Aborted (the child was killed,
// and what it had started was killed as well).
absl::StatusOr<int> RunInSupervisorProcess(absl::Duration patience, absl::FunctionRef<int(FrontLink front)> body);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_SUPERVISOR_PROCESS_H_
