// File: restarts.h

#ifndef COHORT_TOOLS_LAUNCH_RESTARTS_H_
#define COHORT_TOOLS_LAUNCH_RESTARTS_H_

#include "absl/status/statusor.h"
#include "cohort/tools/launch/console.h"
#include "cohort/tools/launch/front_link.h"
#include "cohort/tools/launch/signals.h"
#include "cohort/tools/launch/supervisor.h"

namespace cohort::launch {

// Starts the ranks, and all of them again after a failure, at most job.plan.max_restarts times: after a pause of 1 s,
// then of 2, 4, ... 30; at once if they have ended with kExitPreempted without being told to. Blocks until no attempt
// is left, or the last one was a success, or the launcher was told to stop. Returns the exit code.
//
// `front`: where requests come from; see RunInSupervisorProcess. If that process dies, all processes are killed, and
// nothing is started again.
//
// Errors: ResourceExhausted, Internal (the system refuses what is needed to wait for anything).
absl::StatusOr<int> RunAttempts(Job job, FrontLink front, SignalReader& signals, Console& console);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_RESTARTS_H_
