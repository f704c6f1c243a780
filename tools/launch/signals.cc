#include "cohort/tools/launch/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::launch {
namespace {

// nohup ignores HUP; a shell without job control ignores INT and QUIT for what it starts with '&'.
constexpr int kMayStayIgnored[] = {SIGINT, SIGQUIT, SIGHUP};
constexpr int kAlwaysRead[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD};
// Each is then an error of the call that met it.
constexpr int kIgnored[] = {SIGPIPE, SIGXFSZ, SIGTTIN, SIGTTOU};

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

void SetAction(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

bool MayStayIgnored(int signal) {
  for (const int candidate : kMayStayIgnored) {
    if (signal == candidate) return true;
  }
  return false;
}

// Of a signal that is neither blocked nor caught, the kernel tells no process with the number 1: not the launcher of a
// container. So they are blocked before main() begins; SignalReader settles which of them are read.
__attribute__((constructor(101))) void BlockSignalsEarly() {
  sigset_t early;
  sigemptyset(&early);
  for (const int signal : kMayStayIgnored) sigaddset(&early, signal);
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) sigaddset(&early, signal);
  sigprocmask(SIG_BLOCK, &early, nullptr);
}

}  // namespace

bool IsStopRequest(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGQUIT || signal == SIGHUP;
}

std::string SignalName(int signal) {
  switch (signal) {
#define COHORT_SIGNAL_NAME(name) \
  case name:                     \
    return #name;
    COHORT_SIGNAL_NAME(SIGHUP)
    COHORT_SIGNAL_NAME(SIGINT)
    COHORT_SIGNAL_NAME(SIGQUIT)
    COHORT_SIGNAL_NAME(SIGILL)
    COHORT_SIGNAL_NAME(SIGTRAP)
    COHORT_SIGNAL_NAME(SIGABRT)
    COHORT_SIGNAL_NAME(SIGBUS)
    COHORT_SIGNAL_NAME(SIGFPE)
    COHORT_SIGNAL_NAME(SIGKILL)
    COHORT_SIGNAL_NAME(SIGUSR1)
    COHORT_SIGNAL_NAME(SIGSEGV)
    COHORT_SIGNAL_NAME(SIGUSR2)
    COHORT_SIGNAL_NAME(SIGPIPE)
    COHORT_SIGNAL_NAME(SIGALRM)
    COHORT_SIGNAL_NAME(SIGTERM)
    COHORT_SIGNAL_NAME(SIGXCPU)
    COHORT_SIGNAL_NAME(SIGXFSZ)
    COHORT_SIGNAL_NAME(SIGSYS)
#undef COHORT_SIGNAL_NAME
    default:
      return absl::StrCat("signal ", signal);
  }
}

absl::StatusOr<SignalReader> SignalReader::Open() { return OpenFor(/*children_only=*/false); }

absl::StatusOr<SignalReader> SignalReader::OpenForChildren() { return OpenFor(/*children_only=*/true); }

absl::StatusOr<SignalReader> SignalReader::OpenFor(bool children_only) {
  sigset_t blocked;
  sigemptyset(&blocked);
  for (const int signal : kMayStayIgnored) {
    if (!IsIgnored(signal)) sigaddset(&blocked, signal);
  }
  for (const int signal : kAlwaysRead) {
    // An ignored CHLD would make the kernel throw our children's exit codes away.
    SetAction(signal, SIG_DFL);
    sigaddset(&blocked, signal);
  }
  for (const int signal : kIgnored) SetAction(signal, SIG_IGN);
  if (sigprocmask(SIG_SETMASK, &blocked, nullptr) != 0) return absl::ErrnoToStatus(errno, "sigprocmask");
  sigset_t read = blocked;
  if (children_only) {
    sigemptyset(&read);
    sigaddset(&read, SIGCHLD);
  }
  UniqueFd fd(signalfd(-1, &read, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return absl::ErrnoToStatus(errno, "signalfd");
  return SignalReader(std::move(fd));
}

std::optional<int> SignalReader::Next() {
  signalfd_siginfo info;
  if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return std::nullopt;
  sender_ = static_cast<pid_t>(info.ssi_pid);
  return static_cast<int>(info.ssi_signo);
}

void SuspendSelf() {
  sigset_t suspend;
  sigemptyset(&suspend);
  sigaddset(&suspend, SIGTSTP);
  raise(SIGTSTP);  // Blocked now; it takes effect below.
  sigprocmask(SIG_UNBLOCK, &suspend, nullptr);
  sigprocmask(SIG_BLOCK, &suspend, nullptr);
}

void ResetSignals() {
  for (int signal = 1; signal <= SIGRTMAX; ++signal) {
    if (!(MayStayIgnored(signal) && IsIgnored(signal))) SetAction(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

}  // namespace cohort::launch
