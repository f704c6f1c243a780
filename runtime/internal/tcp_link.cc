#include "cohort/runtime/internal/tcp_link.h"

#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {
namespace {

absl::StatusOr<RemoteAddress> RemoteOf(const UniqueFd& connection) {
  sockaddr_storage address;
  socklen_t size = sizeof(address);
  if (getpeername(connection.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::UnavailableError(
        absl::StrCat("rank 0 is gone: ", absl::ErrnoToStatus(errno, "getpeername").message()));
  }
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  RemoteAddress remote;
  if (int error = getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof(host), port, sizeof(port),
                              NI_NUMERICHOST | NI_NUMERICSERV);
      error != 0 || !absl::SimpleAtoi(port, &remote.port)) {
    return absl::InternalError(absl::StrCat("getnameinfo: ", gai_strerror(error)));
  }
  remote.host = host;
  return remote;
}

}  // namespace

absl::Status NotRankZero(const RemoteAddress& address) {
  bool is_ipv6 = address.host.find(':') != std::string::npos;
  return absl::FailedPreconditionError(absl::StrCat("what listens at ", is_ipv6 ? "[" : "", address.host,
                                                    is_ipv6 ? "]:" : ":", address.port,
                                                    " is not rank 0 of a cohort job"));
}

absl::StatusOr<std::unique_ptr<TcpLink>> TcpLink::Create(UniqueFd connection, Hello hello) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<Poller> poller, Poller::Create());
  ABSL_RETURN_IF_ERROR(poller->Add(connection.get(), 0));
  ABSL_ASSIGN_OR_RETURN(RemoteAddress remote, RemoteOf(connection));
  std::unique_ptr<TcpLink> link(new TcpLink(std::move(connection), std::move(remote), std::move(poller)));
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

bool TcpLink::was_dropped() const {
  absl::MutexLock lock(mutex_);
  return was_dropped_;
}

void TcpLink::Serve(Listener& listener) {
  absl::Status lost;
  bool is_stranger = false;
  while (lost.ok()) {
    poller_->Wait();
    std::vector<ControlMessage> messages;
    {
      absl::MutexLock lock(mutex_);
      if (stopping_) return;
      channel_.Flush();
      lost = channel_.Receive(messages);
      has_heard_ = has_heard_ || !messages.empty();
      was_dropped_ = !has_heard_ && absl::IsUnavailable(lost);
      is_stranger = !has_heard_ && absl::IsInvalidArgument(lost);
      UpdateWatch();
    }
    for (ControlMessage& message : messages) listener.OnMessage(std::move(message));
  }
  listener.OnLost(is_stranger ? NotRankZero(remote_)
                              : absl::UnavailableError(absl::StrCat("rank 0 is gone: ", lost.message())));
}

void TcpLink::UpdateWatch() {
  if (watches_writable_ == channel_.has_output()) return;
  watches_writable_ = channel_.has_output();
  poller_->WatchWritable(channel_.fd(), 0, watches_writable_);
}

}  // namespace cohort::internal
