// File: frame_channel.h
//
// FrameChannel: control messages over one TCP connection, without ever waiting.

#ifndef COHORT_RUNTIME_INTERNAL_FRAME_CHANNEL_H_
#define COHORT_RUNTIME_INTERNAL_FRAME_CHANNEL_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/socket.h"

namespace cohort::internal {

// Thread-compatible.
class FrameChannel {
 public:
  // See FrameParser.
  FrameChannel(UniqueFd fd, size_t max_first_body_bytes) : fd_(std::move(fd)), parser_(max_first_body_bytes) {}

  int fd() const { return fd_.get(); }

  // Appends the messages that have arrived, also if it returns an error. Returns after a bounded amount of work: call
  // it again while the socket is readable.
  //
  // Errors: Unavailable if the connection is closed or broken, InvalidArgument if the peer does not speak our protocol.
  absl::Status Receive(std::vector<ControlMessage>& messages);

  // Sends `frame` (see EncodeFrame) as far as the socket takes it, and keeps the rest for Flush. A broken connection is
  // found out by Receive.
  void Send(std::shared_ptr<const std::string> frame);
  void Flush();

  // True if Flush has something to do when the socket is writable.
  bool has_output() const { return !output_.empty(); }

  // Tells the peer that nothing follows. There must be no output.
  void FinishSending();

 private:
  UniqueFd fd_;
  FrameParser parser_;
  std::deque<std::shared_ptr<const std::string>> output_;
  size_t num_sent_ = 0;  // bytes of output_.front()
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_FRAME_CHANNEL_H_
