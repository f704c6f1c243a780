// A process whose parent dies becomes a child of this one, as it adopts orphans. So it is enough to kill the children, again
// and again, until there are none: what they had started is among them then. A child's number is not given away before it is
// waited for, which only this process does; so no stranger is hit.

#include "cohort/tools/launch/process_tree.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/proc_stat.h"

namespace cohort::launch {
namespace {

// The numbers of a process, by its name in /proc: that in the PID namespace of /proc first, then those in namespaces below it,
// down to its own. Empty if it has gone, or there is no /proc.
std::vector<pid_t> NumbersOf(std::string_view name) {
  std::vector<pid_t> numbers;
  std::ifstream status(absl::StrCat("/proc/", name, "/status"));
  for (std::string line; std::getline(status, line);) {
    std::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, "NSpid:")) continue;
    std::istringstream fields{std::string(rest)};
    for (pid_t number; fields >> number;) numbers.push_back(number);
    break;
  }
  return numbers;
}

// Where the kernel does not list the children of a process.
std::vector<pid_t> ChildrenByParent(pid_t self) {
  std::vector<pid_t> children;
  DIR* const proc = opendir("/proc");
  if (proc == nullptr) return children;
  while (const dirent* const entry = readdir(proc)) {
    pid_t pid;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const std::optional<ProcStat> stat = ReadProcStat(pid);
    if (stat.has_value() && stat->ppid == self) children.push_back(pid);
  }
  closedir(proc);
  return children;
}

// By our own numbers, whatever those of /proc are. A child that has its own namespace has more numbers than we.
std::vector<pid_t> Children(const std::vector<pid_t>& self) {
  std::vector<pid_t> listed;
  std::ifstream list(absl::StrCat("/proc/self/task/", self.front(), "/children"));
  if (list.is_open()) {
    for (pid_t pid; list >> pid;) listed.push_back(pid);
  } else {
    listed = ChildrenByParent(self.front());
  }
  if (self.size() == 1) return listed;  // /proc is that of our namespace
  std::vector<pid_t> children;
  for (const pid_t pid : listed) {
    const std::vector<pid_t> numbers = NumbersOf(absl::StrCat(pid));
    if (numbers.size() >= self.size()) children.push_back(numbers[self.size() - 1]);
  }
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

Descendants KillDescendants(absl::Duration patience) {
  constexpr absl::Duration kPause = absl::Milliseconds(1);
  if (!ReapAndHasChildren()) return Descendants::kNone;
  const std::vector<pid_t> self = NumbersOf("self");
  if (self.empty()) return Descendants::kLeft;
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + absl::ToChronoNanoseconds(patience); Clock::now() < end;
       absl::SleepFor(kPause)) {
    for (const pid_t child : Children(self)) kill(child, SIGKILL);
    if (!ReapAndHasChildren()) return Descendants::kKilled;
  }
  return Descendants::kLeft;
}

}  // namespace cohort::launch
