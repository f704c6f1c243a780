#include "cohort/runtime/internal/tcp_link.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {

absl::StatusOr<std::unique_ptr<TcpLink>> TcpLink::Create(UniqueFd connection, Hello hello) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, Poller::Create());
  ABSL_RETURN_IF_ERROR(poller->Add(connection.get(), 0));
  std::unique_ptr<TcpLink> link(new TcpLink(std::move(connection), std::move(poller)));
  link->Send(std::move(hello));
  return link;
}

TcpLink::~TcpLink() {
  {
    absl::MutexLock lock(mutex_);
    stopping_ = true;
  }
  poller_->Wake();
  if (thread_.joinable()) thread_.join();
}

void TcpLink::Start(Listener* absl_nonnull listener) {
  thread_ = std::thread([this, listener] { Serve(*listener); });
}

void TcpLink::Send(ControlMessage message) {
  auto frame = std::make_shared<const std::string>(EncodeFrame(message));
  absl::MutexLock lock(mutex_);
  channel_.Send(std::move(frame));
  UpdateWatch();
}

void TcpLink::Serve(Listener& listener) {
  absl::Status lost;
  while (lost.ok()) {
    poller_->Wait();
    std::vector<ControlMessage> messages;
    {
      absl::MutexLock lock(mutex_);
      if (stopping_) return;
      channel_.Flush();
      lost = channel_.Receive(messages);
      UpdateWatch();
    }
    for (ControlMessage& message : messages) listener.OnMessage(std::move(message));
  }
  listener.OnLost(absl::UnavailableError(absl::StrCat("rank 0 is gone: ", lost.message())));
}

void TcpLink::UpdateWatch() {
  if (watches_writable_ == channel_.has_output()) return;
  watches_writable_ = channel_.has_output();
  poller_->WatchWritable(channel_.fd(), 0, watches_writable_);
}

}  // namespace cohort::internal
