#include "cohort/tools/launch/poller.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"

namespace cohort::launch {
namespace {

uint64_t Pack(Event event) { return (static_cast<uint64_t>(event.source) << 32) | event.index; }

Event Unpack(uint64_t packed) {
  return {.source = static_cast<Source>(packed >> 32), .index = static_cast<size_t>(packed & 0xffffffff)};
}

int Milliseconds(std::optional<absl::Duration> timeout) {
  if (!timeout.has_value()) return -1;
  // Rounded up: a wait that ends just before its deadline would be followed by a useless one of 0 ms.
  return static_cast<int>(std::ceil(absl::ToDoubleMilliseconds(std::max(*timeout, absl::ZeroDuration()))));
}

}  // namespace

absl::StatusOr<Poller> Poller::Open() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return absl::ErrnoToStatus(errno, "epoll_create1");
  return Poller(std::move(epoll));
}

void Poller::Watch(int fd, Event event, uint32_t events) {
  if (!watched_.insert(fd).second) return;
  epoll_event request = {.events = events, .data = {.u64 = Pack(event)}};
  ABSL_CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &request), 0) << "descriptor " << fd;
}

void Poller::Unwatch(int fd) {
  if (watched_.erase(fd) == 0) return;
  ABSL_CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr), 0) << "descriptor " << fd;
}

std::vector<Event> Poller::Wait(std::optional<absl::Duration> timeout) {
  // Room for all at once: what is left for the next wait would come after less urgent things of this one.
  std::vector<epoll_event> happened(std::max<size_t>(watched_.size(), 1));
  const int count = epoll_wait(epoll_.get(), happened.data(), static_cast<int>(happened.size()), Milliseconds(timeout));
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) {
    events.push_back(Unpack(happened[i].data.u64));
    events.back().order = ++num_events_;
  }
  std::stable_sort(events.begin(), events.end(), [](Event a, Event b) { return a.source < b.source; });
  return events;
}

}  // namespace cohort::launch
