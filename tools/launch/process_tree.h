// File: process_tree.h

#ifndef COHORT_TOOLS_LAUNCH_PROCESS_TREE_H_
#define COHORT_TOOLS_LAUNCH_PROCESS_TREE_H_

#include "absl/time/time.h"

namespace cohort::launch {

// Kills every process that descends from this one, whatever group or session it has moved to and whatever it ignores, and
// waits for it, at most `patience`. This process must adopt orphans (ProcessTable::AdoptOrphans) and have one thread.
// Returns whether any of them was still alive.
bool KillDescendants(absl::Duration patience);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_PROCESS_TREE_H_
