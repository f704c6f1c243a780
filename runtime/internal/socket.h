// File: socket.h
//
// TCP sockets that do not block, are not inherited, and belong to somebody.

#ifndef COHORT_RUNTIME_INTERNAL_SOCKET_H_
#define COHORT_RUNTIME_INTERNAL_SOCKET_H_

#include <unistd.h>

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {

// Owns a file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

struct Listener {
  UniqueFd fd;
  int port = 0;
};

// Listens on a port of the kernel's choice at `address`, a numeric IPv4 or IPv6 address of this machine.
//
// Errors: InvalidArgument if `address` is not numeric; otherwise by errno.
absl::StatusOr<Listener> ListenAt(const std::string& address);

// Blocks until connected, at most until `deadline`. The kernel's answer is final: nothing is tried twice.
//
// Errors: InvalidArgument if `address` is not numeric; DeadlineExceeded; otherwise by errno.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& address, int port, SteadyTime deadline);

// Returns the next connection, or an empty one if there is none.
//
// Errors: by errno, ResourceExhausted if there are no more file descriptors.
absl::StatusOr<UniqueFd> AcceptFrom(const UniqueFd& listener);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_SOCKET_H_
