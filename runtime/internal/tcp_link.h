// File: tcp_link.h
//
// TcpLink: the link of every rank but rank 0, one connection to it.

#ifndef COHORT_RUNTIME_INTERNAL_TCP_LINK_H_
#define COHORT_RUNTIME_INTERNAL_TCP_LINK_H_

#include <memory>
#include <string>
#include <thread>  // NOLINT: the standard thread is all that is needed
#include <utility>

#include "absl/base/nullability.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/frame_channel.h"
#include "cohort/runtime/internal/poller.h"
#include "cohort/runtime/internal/socket.h"

namespace cohort::internal {

// Where a connection leads to.
struct RemoteAddress {
  std::string host;  // numeric
  int port = 0;
};

// FailedPrecondition: whoever listens there does not speak as rank 0 would.
absl::Status NotRankZero(const RemoteAddress& address);

class TcpLink final : public ControlLink {
 public:
  // `connection` leads to rank 0's TcpHost, which hears `hello` first.
  static absl::StatusOr<std::unique_ptr<TcpLink>> Create(UniqueFd connection, Hello hello);

  ~TcpLink() override;

  void Start(Listener* absl_nonnull listener) override;
  void Send(ControlMessage message) override;

  const RemoteAddress& remote() const { return remote_; }
  // True if the connection has ended before rank 0 said anything. Then nobody may have heard the Hello. Any thread.
  bool was_dropped() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  TcpLink(UniqueFd connection, RemoteAddress remote, std::unique_ptr<Poller> poller)
      : remote_(std::move(remote)), poller_(std::move(poller)), channel_(std::move(connection), kMaxBodyBytes) {}

  void Serve(Listener& listener);
  void UpdateWatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RemoteAddress remote_;
  const std::unique_ptr<Poller> poller_;
  mutable absl::Mutex mutex_;
  FrameChannel channel_ ABSL_GUARDED_BY(mutex_);
  bool watches_writable_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_heard_ ABSL_GUARDED_BY(mutex_) = false;
  bool was_dropped_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TCP_LINK_H_
