// File: poller.h

#ifndef COHORT_TOOLS_LAUNCH_POLLER_H_
#define COHORT_TOOLS_LAUNCH_POLLER_H_

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// What can happen, the most urgent first.
enum class Source {
  // Evidence of the order in which ranks died comes before the news that they did; and that before signals, whose
  // SIGCHLD tells of deaths without their order, and before output, so that an end is known as soon as it can be seen.
  kRankLifeline,
  kRankExit,
  kSignal,
  // The process in front of ours has got a signal, or died.
  kFront,
  kRankOut,
  kRankErr,
  kTerminal,
  kTerminalPipe,
  kConsole,
};

struct Event {
  Source source;
  // Of the rank.
  size_t index = 0;
  // Set by Wait(): what happened earlier has the smaller number.
  int64_t order = 0;
};

// epoll, with the events of one wait sorted by urgency and numbered in the order in which the kernel saw them.
class Poller {
 public:
  static absl::StatusOr<Poller> Open();

  // From now on `event` is told when `fd` is ready for `events` (EPOLLIN, EPOLLOUT, EPOLLET; 0: when the other end is
  // closed). Does nothing if `fd` is watched already: its event stays as it is. It must be unwatched before it is
  // closed.
  void Watch(int fd, Event event, uint32_t events);
  void Unwatch(int fd);

  // Blocks until something happens, or `timeout` is over (nullopt: for ever). May return nothing earlier than that.
  std::vector<Event> Wait(std::optional<absl::Duration> timeout);

  // The order of the latest event.
  int64_t num_events() const { return num_events_; }

 private:
  explicit Poller(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  UniqueFd epoll_;
  std::set<int> watched_;
  int64_t num_events_ = 0;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_POLLER_H_
