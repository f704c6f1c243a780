// File: process_tree.h

#ifndef COHORT_TOOLS_LAUNCH_PROCESS_TREE_H_
#define COHORT_TOOLS_LAUNCH_PROCESS_TREE_H_

#include "absl/time/time.h"

namespace cohort::launch {

enum class Descendants {
  kNone,    // there was none that lived
  kKilled,  // all that lived are gone
  kLeft,    // some are not: they hang in the kernel, or there is no /proc
};

// Kills every process that descends from this one, whatever group or session it has moved to and whatever it ignores, and
// waits for it, at most `patience`. This process must adopt orphans (ProcessTable::AdoptOrphans) and have one thread. It finds
// them by /proc, that of this process's own PID namespace or of one above it.
Descendants KillDescendants(absl::Duration patience);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_PROCESS_TREE_H_
