// Why two processes. Whoever starts a process cannot do anything about it once he has been killed, and what the process
// has started in turn is handed to the nearest ancestor that adopts orphans: so that ancestor must be another process
// than the one that a person, a scheduler or `timeout` kills. It has a session of its own, because kills of a whole
// group are usual. That it is the child, and not the one in front, lets the front keep what only that one has: the
// number that its parent knows, and the terminal, which may be read by the foreground group alone.
//
// Both killed at once is what remains. The ranks then die, by their parent-death signal; what they have started may
// not. So the second one should not bear the name of the first, by which people kill; see process_title.h.

#include "cohort/tools/launch/supervisor_process.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/front_link.h"
#include "cohort/tools/launch/poller.h"
#include "cohort/tools/launch/process_table.h"
#include "cohort/tools/launch/process_tree.h"
#include "cohort/tools/launch/repeated_signals.h"
#include "cohort/tools/launch/signals.h"
#include "cohort/tools/launch/terminal_relay.h"

namespace cohort::launch {
namespace {

// What is left then hangs in the kernel.
constexpr absl::Duration kKillTime = absl::Seconds(5);

// A terminal that decides which process group may read it.
bool IsControllingTerminal(int fd) { return tcgetpgrp(fd) >= 0; }

class Front {
  using Clock = std::chrono::steady_clock;

 public:
  Front(pid_t child, absl::Duration patience, FrontLinkSender link, SignalReader signals, Poller poller,
        std::optional<TerminalRelay> relay)
      : child_(child),
        patience_(patience),
        link_(std::move(link)),
        signals_(std::move(signals)),
        poller_(std::move(poller)),
        relay_(std::move(relay)) {}

  // Until the child has ended.
  siginfo_t Run() {
    poller_.Watch(signals_.fd(), {Source::kSignal}, EPOLLIN);
    for (;;) {
      if (const std::optional<siginfo_t> end = End()) return *end;
      UpdateWatches();
      for (const Event event : poller_.Wait(TimeLeft())) {
        if (event.source == Source::kSignal) {
          PassSignalsOn();
        } else if (relay_.has_value()) {
          relay_->Pump();
        }
      }
    }
  }

 private:
  std::optional<siginfo_t> End() const {
    siginfo_t info = {};
    const bool has_ended = waitid(P_PID, child_, &info, WEXITED | WNOHANG) == 0 && info.si_pid == child_;
    return has_ended ? std::optional<siginfo_t>(info) : std::nullopt;
  }

  // nullopt unless the child was told to stop. Past the end of it the child is killed.
  std::optional<absl::Duration> TimeLeft() {
    if (!deadline_.has_value()) return std::nullopt;
    const absl::Duration left = absl::FromChrono(*deadline_ - Clock::now());
    if (left > absl::ZeroDuration()) return left;
    kill(child_, SIGKILL);
    deadline_.reset();
    return std::nullopt;
  }

  void UpdateWatches() {
    if (!relay_.has_value()) return;
    const auto set_watched = [&](bool should_be, int fd, Source source, uint32_t events) {
      should_be ? poller_.Watch(fd, {source}, events) : poller_.Unwatch(fd);
    };
    set_watched(!relay_->done(), relay_->terminal_fd(), Source::kTerminal, EPOLLIN | EPOLLET);
    set_watched(relay_->wants_to_write(), relay_->pipe_fd(), Source::kTerminalPipe, EPOLLOUT);
    if (relay_->done()) relay_.reset();
  }

  void PassSignalsOn() {
    while (const std::optional<int> signal = signals_.Next()) {
      if (*signal == SIGCHLD) {
        ReapStrangers();
        continue;
      }
      if (repeated_.IsRepeated(*signal, signals_.sender(), Clock::now())) continue;
      if (IsStopRequest(*signal) && !deadline_.has_value())
        deadline_ = Clock::now() + absl::ToChronoNanoseconds(patience_);
      const bool is_heard = link_.Send(*signal);
      // Somebody may have stopped it, and whoever wants an end wants that to end as well.
      if (IsStopRequest(*signal)) kill(child_, SIGCONT);
      if (is_heard && *signal == SIGTSTP) SuspendWithChild();
    }
  }

  // The first process of a container is handed all orphans of it, and whoever called exec may have left children to us.
  void ReapStrangers() const {
    for (siginfo_t info = {}; waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0; info = {}) {
      if (info.si_pid == 0 || info.si_pid == child_) return;
      waitid(P_PID, info.si_pid, &info, WEXITED | WNOHANG);
    }
  }

  // The child suspends the ranks first, and then itself.
  void SuspendWithChild() {
    siginfo_t info = {};
    while (waitid(P_PID, child_, &info, WSTOPPED | WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    if (info.si_code != CLD_STOPPED) return;
    SuspendSelf();
    kill(child_, SIGCONT);
  }

  const pid_t child_;
  const absl::Duration patience_;
  std::optional<Clock::time_point> deadline_;
  FrontLinkSender link_;
  RepeatedSignals repeated_;
  SignalReader signals_;
  Poller poller_;
  std::optional<TerminalRelay> relay_;
};

[[noreturn]] void RunChild(absl::FunctionRef<int(FrontLink front)> body, FrontLink front,
                           std::optional<TerminalRelay>& relay) {
  setsid();
  // While it is suspended it does not hear of anything.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  if (relay.has_value()) dup2(relay->rank_end().get(), STDIN_FILENO);
  relay.reset();
  const int exit_code = body(std::move(front));
  fflush(nullptr);
  _exit(exit_code);
}

}  // namespace

absl::StatusOr<int> RunInSupervisorProcess(absl::Duration patience, absl::FunctionRef<int(FrontLink front)> body) {
  ABSL_ASSIGN_OR_RETURN(SignalReader signals, SignalReader::Open());
  ABSL_ASSIGN_OR_RETURN(Poller poller, Poller::Open());
  ABSL_RETURN_IF_ERROR(ProcessTable::AdoptOrphans());
  std::optional<TerminalRelay> relay;
  if (IsControllingTerminal(STDIN_FILENO)) {
    ABSL_ASSIGN_OR_RETURN(relay, TerminalRelay::Open(STDIN_FILENO));
  }
  ABSL_ASSIGN_OR_RETURN(FrontLink::Ends link, FrontLink::Open());
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (child == 0) {
    link.sender.Close();
    RunChild(body, std::move(link.receiver), relay);
  }
  link.receiver = FrontLink();
  if (relay.has_value()) relay->rank_end().reset();
  const siginfo_t end =
      Front(child, patience, std::move(link.sender), std::move(signals), std::move(poller), std::move(relay)).Run();
  if (end.si_code == CLD_EXITED) return end.si_status;  // and has left nothing
  KillDescendants(kKillTime);
  return absl::AbortedError(absl::StrCat("the process that looked after the ranks (pid ", child, ") was killed by ",
                                         SignalName(end.si_status), "; what it had started has been killed, too"));
}

}  // namespace cohort::launch
