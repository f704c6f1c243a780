#include "cohort/runtime/internal/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace cohort::internal {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// Asks no name server: a name that resolves differently on two machines would be a riddle.
absl::StatusOr<AddressList> NumericAddress(const std::string& address, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("not a numeric IPv4 or IPv6 address: \"", address, "\""));
  }
  return AddressList(found, &freeaddrinfo);
}

absl::Status LastError(std::string_view what) { return absl::ErrnoToStatus(errno, what); }

absl::StatusOr<UniqueFd> OpenSocket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return LastError("socket");
  return fd;
}

absl::Status SetOption(const UniqueFd& fd, int level, int option, int value) {
  if (setsockopt(fd.get(), level, option, &value, sizeof(value)) != 0) return LastError("setsockopt");
  return absl::OkStatus();
}

// A machine that loses its power, or its cable, closes no connection. What was sent to it and is not acknowledged would be sent
// again for a quarter of an hour, and as long as it is, the kernel asks after nobody (keepalive is for idle connections):
// so there are two limits.
constexpr absl::Duration kSilence = absl::Seconds(25);
constexpr int kIdleSeconds = 10, kProbeSeconds = 5, kProbes = 3;
static_assert(kSilence == absl::Seconds(kIdleSeconds + kProbes * kProbeSeconds));

// Messages are small and waited for.
absl::Status Configure(const UniqueFd& fd) {
  ABSL_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1));
  ABSL_RETURN_IF_ERROR(SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
  ABSL_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds));
  ABSL_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds));
  ABSL_RETURN_IF_ERROR(SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes));
  return SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(absl::ToInt64Milliseconds(kSilence)));
}

absl::Status WaitUntilConnected(const UniqueFd& fd, std::string_view target, SteadyTime deadline) {
  pollfd poll_fd = {.fd = fd.get(), .events = POLLOUT, .revents = 0};
  while (true) {
    absl::Duration left = Between(SteadyNow(), deadline);
    if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError(absl::StrCat("connect to ", target));
    // In slices: poll() counts in int milliseconds, and a deadline may be years away.
    int ready = poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(std::min(left, absl::Seconds(60)))) + 1);
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) return LastError("poll");
  }
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return LastError("getsockopt");
  if (error != 0) return absl::ErrnoToStatus(error, absl::StrCat("connect to ", target));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Listener> ListenAt(const std::string& address) {
  ABSL_ASSIGN_OR_RETURN(AddressList where, NumericAddress(address, 0));
  ABSL_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(where->ai_family));
  if (bind(fd.get(), where->ai_addr, where->ai_addrlen) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return LastError(absl::StrCat("listen at ", address));
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &size) != 0) return LastError("getsockname");
  int port = bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                         : reinterpret_cast<sockaddr_in&>(bound).sin_port;
  return Listener{.fd = std::move(fd), .port = ntohs(port)};
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& address, int port, SteadyTime deadline) {
  ABSL_ASSIGN_OR_RETURN(AddressList where, NumericAddress(address, port));
  ABSL_ASSIGN_OR_RETURN(UniqueFd fd, OpenSocket(where->ai_family));
  ABSL_RETURN_IF_ERROR(Configure(fd));
  std::string target = absl::StrCat(address, " port ", port);
  // An interrupted connect() goes on by itself.
  if (connect(fd.get(), where->ai_addr, where->ai_addrlen) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return LastError(absl::StrCat("connect to ", target));
  }
  ABSL_RETURN_IF_ERROR(WaitUntilConnected(fd, target, deadline));
  return fd;
}

absl::StatusOr<UniqueFd> AcceptFrom(const UniqueFd& listener) {
  while (true) {
    UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.is_open()) {
      // A connection that is over already cannot be configured; nothing is lost with it.
      if (!Configure(fd).ok()) continue;
      return fd;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return UniqueFd();
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return absl::ResourceExhaustedError(absl::StrCat("accept: ", strerror(errno)));
    }
    // Anything else concerns only the connection that would have been returned.
  }
}

}  // namespace cohort::internal
