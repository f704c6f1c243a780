// Why a process group can be signalled without ever hitting a stranger's:
//
//   1  The kernel does not give a number away while a process has it as its group's number, a zombie included.
//   2  A leader that has not been collected is such a process. After that, its helpers may be; their parents die, and
//      as this process adopts orphans, they are its children. So "has a child in that group", which waitid() answers,
//      is exact, and only this process can end it, by waiting for the child.
//
// A helper with a session of its own is waited for when it ends, but not signalled.

#include "cohort/tools/launch/process_table.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "cohort/tools/launch/proc_stat.h"

namespace cohort::launch {

absl::Status ProcessTable::AdoptOrphans() {
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return absl::ErrnoToStatus(errno, "prctl(PR_SET_CHILD_SUBREAPER)");
  return absl::OkStatus();
}

std::optional<ProcessEnd> ProcessTable::CollectEnd(size_t index) {
  Leader& leader = leaders_[index];
  siginfo_t info = {};
  if (leader.has_ended || waitid(P_PID, leader.pid, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  leader.has_ended = true;
  if (info.si_code == CLD_EXITED) return ProcessEnd{.exit_code = info.si_status};
  return ProcessEnd{.signal = info.si_status, .core_dumped = info.si_code == CLD_DUMPED};
}

bool ProcessTable::AllHaveEnded() const {
  return std::all_of(leaders_.begin(), leaders_.end(), [](const Leader& leader) { return leader.has_ended; });
}

bool ProcessTable::IsDying(size_t index) const {
  // PF_EXITING of linux/sched.h. It is set before anything of the process is taken down.
  constexpr unsigned kExiting = 0x4;
  const std::optional<ProcStat> stat = ReadProcStat(leaders_[index].pid);
  return stat.has_value() && (stat->flags & kExiting) != 0;
}

std::optional<size_t> ProcessTable::ReapOrphans() {
  for (;;) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return std::nullopt;
    for (size_t i = 0; i < leaders_.size(); ++i) {
      if (!leaders_[i].has_ended && leaders_[i].pid == info.si_pid) return i;
    }
    waitid(P_PID, info.si_pid, &info, WEXITED | WNOHANG);
  }
}

std::vector<size_t> ProcessTable::LiveGroups() const {
  std::vector<size_t> live;
  for (size_t i = 0; i < leaders_.size(); ++i) {
    if (IsGroupAlive(leaders_[i])) live.push_back(i);
  }
  return live;
}

void ProcessTable::SignalAll(int signal) const {
  for (const Leader& leader : leaders_) {
    if (IsGroupAlive(leader)) kill(-leader.pid, signal);
    // It may have moved to another group. It has not been waited for, so that the number is still its own.
    if (!leader.has_ended && getpgid(leader.pid) != leader.pid) kill(leader.pid, signal);
  }
}

bool ProcessTable::IsGroupAlive(const Leader& leader) const {
  if (!leader.has_ended) return true;
  siginfo_t info = {};
  return waitid(P_PGID, leader.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace cohort::launch
