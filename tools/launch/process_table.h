// File: process_table.h
//
// The processes of a job: which of them live, how the ranks ended, and how to reach them all.

#ifndef COHORT_TOOLS_LAUNCH_PROCESS_TABLE_H_
#define COHORT_TOOLS_LAUNCH_PROCESS_TABLE_H_

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace cohort::launch {

// How a process ended.
struct ProcessEnd {
  // The signal that ended it, or 0 if it exited by itself, with `exit_code`.
  int signal = 0;
  int exit_code = 0;
  bool core_dumped = false;
};

// The leaders of the ranks' process groups and whatever they start. Not thread-safe; the process must have no other
// children.
class ProcessTable {
 public:
  // Makes this process the one to which a rank's helpers are handed when their parents die, so that they can be waited
  // for.
  //
  // Errors: Internal (the system refuses it).
  static absl::Status AdoptOrphans();

  // Adds the leader of a process group; it gets the next index.
  void Add(pid_t pid) { leaders_.push_back({.pid = pid}); }

  // If the leader has ended and that has not been told before, tells how.
  std::optional<ProcessEnd> CollectEnd(size_t index);
  bool AllHaveEnded() const;

  // True if the leader is on its way to its end, or there already, and can no longer do anything about it.
  bool IsDying(size_t index) const;

  // Waits for helpers that have ended, until none is left (nullopt) or the leader with the returned index stands before
  // them: CollectEnd() it and call again.
  std::optional<size_t> ReapOrphans();

  // The groups in which a process lives, the leader or a helper of it.
  std::vector<size_t> LiveGroups() const;

  // Sends `signal` to every process of every live group.
  void SignalAll(int signal) const;

 private:
  struct Leader {
    pid_t pid;
    bool has_ended = false;
  };

  bool IsGroupAlive(const Leader& leader) const;

  std::vector<Leader> leaders_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_PROCESS_TABLE_H_
