#include "cohort/tools/launch/restarts.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/poller.h"

namespace cohort::launch {
namespace {

absl::Duration PauseBefore(int restart) {
  constexpr int kDoublings = 5;
  return std::min(absl::Seconds(30), absl::Seconds(1 << std::min(restart - 1, kDoublings)));
}

// No rank is there that a signal could be passed on to. The request to stop that came during the pause, if there was one.
std::optional<int> Pause(absl::Duration duration, Poller& poller, SignalReader& signals, Console& console) {
  const absl::Time end = absl::Now() + duration;
  for (absl::Duration left = duration; left > absl::ZeroDuration(); left = end - absl::Now()) {
    console.Flush();
    for (const Event event : poller.Wait(left)) {
      if (event.source == Source::kFront) _exit(kExitLauncherFailed);
    }
    while (const std::optional<int> signal = signals.Next()) {
      if (IsStopRequest(*signal)) return signal;
      if (*signal == SIGTSTP) raise(SIGSTOP);
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<int> RunAttempts(Job job, int front_fd, SignalReader& signals, Console& console) {
  for (;;) {
    ABSL_ASSIGN_OR_RETURN(Poller poller, Poller::Open());
    poller.Watch(front_fd, {Source::kFront}, 0);
    const AttemptEnd end = Supervisor(job, poller, signals, console).Run();
    if (end.kind == AttemptEnd::Kind::kFinal || job.plan.restart_count >= job.plan.max_restarts) return end.exit_code;
    ++job.plan.restart_count;
    const bool at_once = end.kind == AttemptEnd::Kind::kPreempted;
    const absl::Duration pause = at_once ? absl::ZeroDuration() : PauseBefore(job.plan.restart_count);
    absl::StrAppend(&console.pending(Stream::kErr), "launch: starting all ranks again ",
                    at_once ? "at once" : absl::StrCat("in ", absl::FormatDuration(pause)), ": restart ",
                    job.plan.restart_count, " of at most ", job.plan.max_restarts, "\n");
    if (const std::optional<int> signal = Pause(pause, poller, signals, console)) {
      absl::StrAppend(&console.pending(Stream::kErr), "launch: received ", SignalName(*signal), ": no restart\n");
      console.Flush();
      return 128 + *signal;
    }
  }
}

}  // namespace cohort::launch
