// File: unique_fd.h

#ifndef COHORT_TOOLS_LAUNCH_UNIQUE_FD_H_
#define COHORT_TOOLS_LAUNCH_UNIQUE_FD_H_

#include <unistd.h>

#include <utility>

namespace cohort::launch {

// Owns a file descriptor and closes it. Movable; a moved-from one is empty.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_UNIQUE_FD_H_
