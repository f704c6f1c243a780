// A process whose parent dies becomes a child of this one, as it adopts orphans. So it is enough to kill the children, again
// and again, until there are none: what they had started is among them then. A child's number is not given away before it is
// waited for, which only this process does; so no stranger is hit.

#include "cohort/tools/launch/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/proc_stat.h"

namespace cohort::launch {
namespace {

bool IsChild(pid_t pid) {
  const std::optional<ProcStat> stat = ReadProcStat(pid);
  return stat.has_value() && stat->ppid == getpid();
}

// Where the kernel does not list the children of a process.
std::vector<pid_t> ChildrenByParent() {
  std::vector<pid_t> children;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return children;
  while (const dirent* const entry = readdir(proc)) {
    pid_t pid;
    if (absl::SimpleAtoi(entry->d_name, &pid) && IsChild(pid)) children.push_back(pid);
  }
  closedir(proc);
  return children;
}

std::vector<pid_t> Children() {
  std::ifstream list(absl::StrCat("/proc/self/task/", getpid(), "/children"));
  if (!list.is_open()) return ChildrenByParent();
  std::vector<pid_t> children;
  for (pid_t pid; list >> pid;) children.push_back(pid);
  return children;
}

// Waits for those that have ended. False once there is no child left.
bool ReapAndHasChildren() {
  for (;;) {
    siginfo_t info = {};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG) != 0) return false;
    if (info.si_pid == 0) return true;
  }
}

}  // namespace

bool KillDescendants(absl::Duration patience) {
  constexpr absl::Duration kPause = absl::Milliseconds(1);
  if (!ReapAndHasChildren()) return false;
  for (const absl::Time end = absl::Now() + patience; absl::Now() < end; absl::SleepFor(kPause)) {
    for (const pid_t child : Children()) kill(child, SIGKILL);
    if (!ReapAndHasChildren()) break;
  }
  return true;
}

}  // namespace cohort::launch
