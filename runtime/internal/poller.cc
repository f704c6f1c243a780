#include "cohort/runtime/internal/poller.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <utility>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"

namespace cohort::internal {
namespace {

constexpr uint64_t kWakeKey = ~uint64_t{0};

}  // namespace

absl::StatusOr<std::unique_ptr<Poller>> Poller::Create() {
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.is_open()) return absl::ErrnoToStatus(errno, "epoll_create1");
  UniqueFd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.is_open()) return absl::ErrnoToStatus(errno, "eventfd");
  int wake_fd = wake.get();
  std::unique_ptr<Poller> poller(new Poller(std::move(epoll), std::move(wake)));
  ABSL_RETURN_IF_ERROR(poller->Add(wake_fd, kWakeKey));
  return poller;
}

absl::Status Poller::Add(int fd, uint64_t key) {
  epoll_event event = {.events = EPOLLIN, .data = {.u64 = key}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return absl::ErrnoToStatus(errno, "epoll_ctl");
  return absl::OkStatus();
}

void Poller::WatchWritable(int fd, uint64_t key, bool writable) {
  epoll_event event = {.events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN, .data = {.u64 = key}};
  ABSL_CHECK_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event), 0);
}

void Poller::Remove(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::vector<Poller::Event> Poller::Wait() {
  std::array<epoll_event, 64> ready;
  int count = epoll_wait(epoll_.get(), ready.data(), ready.size(), -1);
  ABSL_CHECK(count >= 0 || errno == EINTR) << "epoll_wait: " << errno;
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) {
    if (ready[i].data.u64 == kWakeKey) continue;
    events.push_back({.key = ready[i].data.u64,
                      .readable = (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                      .writable = (ready[i].events & EPOLLOUT) != 0});
  }
  return events;
}

void Poller::Wake() {
  uint64_t one = 1;
  // Can fail only if it is awake already.
  [[maybe_unused]] ssize_t written = write(wake_.get(), &one, sizeof(one));
}

}  // namespace cohort::internal
