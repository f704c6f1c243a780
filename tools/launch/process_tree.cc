// A process whose parent dies becomes a child of this one, as it adopts orphans. So it is enough to kill the children, again
// and again, until there are none: what they had started is among them then. A child's number is not given away before it is
// waited for, which only this process does; so no stranger is hit.

#include "cohort/tools/launch/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cohort::launch {
namespace {

// Of the process `pid`, by /proc/PID/stat; 0 if it has gone. The second field is its name in parentheses, which may hold anything.
pid_t ParentOf(pid_t pid) {
  std::string stat;
  std::getline(std::ifstream(absl::StrCat("/proc/", pid, "/stat")), stat, '\0');
  const size_t name_end = stat.rfind(')');
  pid_t parent = 0;
  if (name_end == std::string::npos || sscanf(stat.c_str() + name_end, ") %*c %d", &parent) != 1) return 0;
  return parent;
}

// Where the kernel does not list the children of a process.
std::vector<pid_t> ChildrenByParent() {
  std::vector<pid_t> children;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return children;
  while (const dirent* const entry = readdir(proc)) {
    pid_t pid;
    if (absl::SimpleAtoi(entry->d_name, &pid) && ParentOf(pid) == getpid()) children.push_back(pid);
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
