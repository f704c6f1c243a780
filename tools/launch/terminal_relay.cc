#include "cohort/tools/launch/terminal_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"

namespace cohort::launch {

absl::StatusOr<TerminalRelay> TerminalRelay::Open(int terminal_fd) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot open a pipe");
  fcntl(fds[1], F_SETFL, O_NONBLOCK);
  return TerminalRelay(terminal_fd, UniqueFd(fds[0]), UniqueFd(fds[1]));
}

void TerminalRelay::Pump() {
  do {
    WritePending();
  } while (!done() && pending_.empty() && ReadTerminal());
}

void TerminalRelay::WritePending() {
  while (!pending_.empty()) {
    const ssize_t written = write(pipe_.get(), pending_.data(), pending_.size());
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {  // The rank reads no more.
      pending_.clear();
      end_of_file_ = true;
    } else {
      pending_.erase(0, written);
    }
  }
}

bool TerminalRelay::ReadTerminal() {
  if (tcgetpgrp(terminal_fd_) != getpgrp()) return false;
  pollfd readable = {.fd = terminal_fd_, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, 0) <= 0) return false;
  char buffer[4096];
  const ssize_t count = read(terminal_fd_, buffer, sizeof(buffer));
  if (count < 0) return false;  // The terminal has gone, or was given to another group just now.
  pending_.assign(buffer, count);
  end_of_file_ = count == 0;
  return true;
}

}  // namespace cohort::launch
