#include "cohort/tools/launch/restarts.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/poller.h"

namespace cohort::launch {
namespace {

absl::Duration PauseBefore(int restart) {
  constexpr int kDoublings = 5;
  return std::min(absl::Seconds(30), absl::Seconds(1 << std::min(restart - 1, kDoublings)));
}

// No rank is there that a signal could be passed on to. The signal that came during the pause and forbids a restart, if
// there was one: a request to stop, or the one at which ranks would save and stop.
std::optional<int> Pause(absl::Duration duration, FrontLink& front, Console& console) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + absl::ToChronoNanoseconds(duration);
  for (absl::Duration left = duration; left > absl::ZeroDuration(); left = absl::FromChrono(end - Clock::now())) {
    console.Flush();
    pollfd request = {.fd = front.fd(), .events = POLLIN, .revents = 0};
    poll(&request, 1, static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1)))));
    while (const std::optional<int> signal = front.NextSignal()) {
      if (IsStopRequest(*signal) || *signal == SIGUSR1) return signal;
      if (*signal == SIGTSTP) raise(SIGSTOP);
    }
    if (front.is_broken()) break;
  }
  return std::nullopt;
}

void Say(std::string_view text, Console& console) {
  absl::StrAppend(&console.pending(Stream::kErr), "launch: ", text, "\n");
  console.Flush();
}

}  // namespace

absl::StatusOr<int> RunAttempts(Job job, FrontLink front, SignalReader& signals, Console& console) {
  for (;;) {
    ABSL_ASSIGN_OR_RETURN(Poller poller, Poller::Open());
    poller.Watch(front.fd(), {Source::kFront}, EPOLLIN);
    const AttemptEnd end = Supervisor(job, poller, signals, front, console).Run();
    if (end.kind == AttemptEnd::Kind::kFinal || job.plan.restart_count >= job.plan.max_restarts) return end.exit_code;
    ++job.plan.restart_count;
    const bool at_once = end.kind == AttemptEnd::Kind::kPreempted;
    const absl::Duration pause = at_once ? absl::ZeroDuration() : PauseBefore(job.plan.restart_count);
    const std::string when = at_once ? "at once" : absl::StrCat("in ", absl::FormatDuration(pause));
    Say(absl::StrCat("starting all ranks again ", when, ": restart ", job.plan.restart_count, " of at most ",
                     job.plan.max_restarts),
        console);
    const std::optional<int> signal = Pause(pause, front, console);
    if (front.is_broken()) return kExitLauncherFailed;
    if (!signal.has_value()) continue;
    Say(absl::StrCat("received ", SignalName(*signal), ": no restart"), console);
    return IsStopRequest(*signal) ? 128 + *signal : end.exit_code;
  }
}

}  // namespace cohort::launch
