// File: poller.h
//
// Poller: waits for many sockets, and for being woken.

#ifndef COHORT_RUNTIME_INTERNAL_POLLER_H_
#define COHORT_RUNTIME_INTERNAL_POLLER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cohort/runtime/internal/socket.h"

namespace cohort::internal {

// Thread-safe: sockets may come and go while a thread waits.
class Poller {
 public:
  // What has happened to the socket that was added under `key`. The key, not the socket, because the number of a socket
  // that was closed since belongs to the next one.
  struct Event {
    uint64_t key = 0;
    bool readable = false;  // also if it is closed or broken: reading tells
    bool writable = false;
  };

  static absl::StatusOr<std::unique_ptr<Poller>> Create();

  // Watches `fd` until Remove, or until it is closed; for writing only if `writable`.
  absl::Status Add(int fd, uint64_t key);
  void WatchWritable(int fd, uint64_t key, bool writable);
  void Remove(int fd);

  // Blocks until something happens or Wake was called. May return nothing.
  std::vector<Event> Wait();

  // Every Wait, the present one and later ones, returns at once.
  void Wake();

 private:
  Poller(UniqueFd epoll, UniqueFd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}

  UniqueFd epoll_;
  UniqueFd wake_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_POLLER_H_
