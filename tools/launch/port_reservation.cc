// How a port is held without being in the way:
//
//   1  SO_REUSEADDR, then bind, and never listen. Linux lets a second socket bind the same port if both have
//      SO_REUSEADDR and neither listens yet, so rank 0's server can bind and listen while we hold on. Choosing a port,
//      closing it and telling the rank its number would leave a gap in which anybody may take it.
//   2  Port 0 and connect() choose among ports that no socket has bound, SO_REUSEADDR or not: two launchers that choose
//      at the same time get two ports, and no outgoing connection lands on ours.
//   3  The address is the wildcard of both protocols, so that it stands for whichever address rank 0 listens on. As
//      nothing listens, it opens nothing.
//   4  The socket is close-on-exec: a rank that lives on must not keep the port.

#include "cohort/tools/launch/port_reservation.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"

namespace cohort::launch {
namespace {

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

absl::StatusOr<UniqueFd> OpenSocket(int family) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return absl::ErrnoToStatus(errno, "socket");
  const int on = 1;
  if (setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) {
    return absl::ErrnoToStatus(errno, "setsockopt(SO_REUSEADDR)");
  }
  const int off = 0;
  if (family == AF_INET6 && setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) != 0) {
    return absl::ErrnoToStatus(errno, "setsockopt(IPV6_V6ONLY)");
  }
  return socket;
}

// Binds the wildcard address; 0 or the errno of bind().
int BindWildcard(const UniqueFd& socket, int family, int port) {
  SocketAddress address = {};  // All zeros: the wildcard.
  if (family == AF_INET6) {
    address.v6.sin6_family = AF_INET6;
    address.v6.sin6_port = htons(port);
  } else {
    address.v4.sin_family = AF_INET;
    address.v4.sin_port = htons(port);
  }
  const socklen_t length = family == AF_INET6 ? sizeof(address.v6) : sizeof(address.v4);
  return bind(socket.get(), &address.any, length) == 0 ? 0 : errno;
}

absl::StatusOr<int> BoundPort(const UniqueFd& socket) {
  SocketAddress address = {};
  socklen_t length = sizeof(address);
  if (getsockname(socket.get(), &address.any, &length) != 0) return absl::ErrnoToStatus(errno, "getsockname");
  return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

absl::Status BindError(int port, int error) {
  if (error == EADDRINUSE && port == 0) return absl::UnavailableError("no TCP port of this machine is free");
  if (error == EADDRINUSE) return absl::UnavailableError(absl::StrCat("port ", port, " is in use by another program"));
  return absl::ErrnoToStatus(error, absl::StrCat("cannot bind port ", port));
}

// Binds `port` (0: any that is free) and keeps it.
absl::StatusOr<UniqueFd> BindPort(int port) {
  absl::StatusOr<UniqueFd> socket = OpenSocket(AF_INET6);
  if (socket.ok()) {
    const int error = BindWildcard(*socket, AF_INET6, port);
    if (error == 0) return socket;
    if (error != EADDRNOTAVAIL) return BindError(port, error);
  }
  // A kernel without IPv6 refuses the socket; one on which it is disabled, the address.
  ABSL_ASSIGN_OR_RETURN(socket, OpenSocket(AF_INET));
  const int error = BindWildcard(*socket, AF_INET, port);
  if (error != 0) return BindError(port, error);
  return socket;
}

}  // namespace

absl::StatusOr<PortReservation> PortReservation::ChooseFree() { return Claim(0); }

absl::StatusOr<PortReservation> PortReservation::Claim(int port) {
  ABSL_ASSIGN_OR_RETURN(UniqueFd socket, BindPort(port));
  ABSL_ASSIGN_OR_RETURN(const int bound, BoundPort(socket));
  return PortReservation(std::move(socket), bound);
}

}  // namespace cohort::launch
