// File: tcp_link.h
//
// TcpLink: the link of every rank but rank 0, one connection to it.

#ifndef COHORT_RUNTIME_INTERNAL_TCP_LINK_H_
#define COHORT_RUNTIME_INTERNAL_TCP_LINK_H_

#include <memory>
#include <thread>  // NOLINT: the standard thread is all that is needed
#include <utility>

#include "absl/base/nullability.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/frame_channel.h"
#include "cohort/runtime/internal/poller.h"
#include "cohort/runtime/internal/socket.h"

namespace cohort::internal {

class TcpLink final : public ControlLink {
 public:
  // `connection` leads to rank 0's TcpHost, which hears `hello` first.
  static absl::StatusOr<std::unique_ptr<TcpLink>> Create(UniqueFd connection, Hello hello);

  ~TcpLink() override;

  void Start(Listener* absl_nonnull listener) override;
  void Send(ControlMessage message) override;

 private:
  TcpLink(UniqueFd connection, std::unique_ptr<Poller> poller)
      : poller_(std::move(poller)), channel_(std::move(connection), kMaxBodyBytes) {}

  void Serve(Listener& listener);
  void UpdateWatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<Poller> poller_;
  absl::Mutex mutex_;
  FrameChannel channel_ ABSL_GUARDED_BY(mutex_);
  bool watches_writable_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TCP_LINK_H_
