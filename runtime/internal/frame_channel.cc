#include "cohort/runtime/internal/frame_channel.h"

#include <errno.h>
#include <sys/socket.h>

#include <cstring>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {

absl::Status FrameChannel::Receive(std::vector<ControlMessage>& messages) {
  constexpr int kMostReads = 64;  // so that one rank's large payload does not keep the others waiting
  char buffer[64 << 10];
  for (int i = 0; i < kMostReads; ++i) {
    ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return absl::OkStatus();
    if (size < 0) return absl::UnavailableError(absl::StrCat("the connection broke: ", strerror(errno)));
    if (size == 0) return absl::UnavailableError("the connection was closed");
    parser_.Append(std::string_view(buffer, size));
    while (true) {
      absl::StatusOr<std::optional<ControlMessage>> message = parser_.Next();
      if (!message.ok()) return message.status();
      if (!message->has_value()) break;
      messages.push_back(**std::move(message));
    }
    if (static_cast<size_t>(size) < sizeof(buffer)) return absl::OkStatus();
  }
  return absl::OkStatus();
}

void FrameChannel::Send(std::shared_ptr<const std::string> frame) {
  output_.push_back(std::move(frame));
  if (output_.size() == 1) Flush();
}

void FrameChannel::Flush() {
  while (!output_.empty()) {
    const std::string& frame = *output_.front();
    ssize_t size = send(fd_.get(), frame.data() + num_sent_, frame.size() - num_sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (size < 0) {
      output_.clear();
      num_sent_ = 0;
      return;
    }
    num_sent_ += size;
    if (num_sent_ == frame.size()) {
      output_.pop_front();
      num_sent_ = 0;
    }
  }
}

void FrameChannel::FinishSending() { shutdown(fd_.get(), SHUT_WR); }

}  // namespace cohort::internal
