#include "cohort/tools/launch/front_link.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"

namespace cohort::launch {

absl::StatusOr<FrontLink::Ends> FrontLink::Open() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) return absl::ErrnoToStatus(errno, "cannot open a pipe");
  return Ends{FrontLink(UniqueFd(fds[0])), FrontLinkSender(UniqueFd(fds[1]))};
}

std::optional<int> FrontLink::NextSignal() {
  uint8_t signal;
  const ssize_t count = pipe_ ? read(pipe_.get(), &signal, 1) : -1;
  if (count == 1) return signal;
  if (count == 0) is_broken_ = true;
  return std::nullopt;
}

bool FrontLinkSender::Send(int signal) {
  const auto byte = static_cast<uint8_t>(signal);
  return write(pipe_.get(), &byte, 1) == 1;
}

}  // namespace cohort::launch
