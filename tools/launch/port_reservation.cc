// How a port is held without being in the way:
//
//   1  SO_REUSEADDR, then bind, and never listen. Linux lets a second socket bind the same port if both have
//      SO_REUSEADDR and neither listens yet, so rank 0's server can bind and listen while we hold on. Choosing a port,
//      closing it and telling the rank its number would leave a gap in which anybody may take it.
//   2  Port 0 and connect() choose among ports that no socket has bound, SO_REUSEADDR or not: two launchers that choose
//      at the same time get two ports, and no outgoing connection lands on ours.
//   3  A port is chosen at the wildcard of both protocols, because some programs listen there wherever their master is.
//      It is held at the address where rank 0 of a cohort program listens: at loopback if that is it.
//   4  The sockets are close-on-exec: a rank that lives on must not keep the port.

#include "cohort/tools/launch/port_reservation.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cohort::launch {
namespace {

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

SocketAddress AddressOf(in_addr v4) {
  SocketAddress address = {};
  address.v4.sin_family = AF_INET;
  address.v4.sin_addr = v4;
  return address;
}

SocketAddress AddressOf(in6_addr v6) {
  SocketAddress address = {};
  address.v6.sin6_family = AF_INET6;
  address.v6.sin6_addr = v6;
  return address;
}

// The loopback addresses that `host` is without a look-up; none if it is anything else.
std::vector<SocketAddress> LoopbackAddresses(const std::string& host) {
  const bool is_localhost = absl::EqualsIgnoreCase(absl::StripSuffix(host, "."), "localhost");
  if (is_localhost) return {AddressOf(in_addr{htonl(INADDR_LOOPBACK)}), AddressOf(in6addr_loopback)};
  in_addr v4;
  // As the look-up of names does, with "127.1" as well.
  if (inet_aton(host.c_str(), &v4) == 1 && (ntohl(v4.s_addr) >> 24) == IN_LOOPBACKNET) return {AddressOf(v4)};
  in6_addr v6;
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return {};
  const bool is_mapped = IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == IN_LOOPBACKNET;
  if (IN6_IS_ADDR_LOOPBACK(&v6) || is_mapped) return {AddressOf(v6)};
  return {};
}

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

// 0 or the errno of bind().
int Bind(const UniqueFd& socket, SocketAddress address, int port) {
  const bool is_v6 = address.any.sa_family == AF_INET6;
  (is_v6 ? address.v6.sin6_port : address.v4.sin_port) = htons(port);
  return bind(socket.get(), &address.any, is_v6 ? sizeof(address.v6) : sizeof(address.v4)) == 0 ? 0 : errno;
}

absl::StatusOr<int> BoundPort(const UniqueFd& socket) {
  SocketAddress address = {};
  socklen_t length = sizeof(address);
  if (getsockname(socket.get(), &address.any, &length) != 0) return absl::ErrnoToStatus(errno, "getsockname");
  return ntohs(address.any.sa_family == AF_INET6 ? address.v6.sin6_port : address.v4.sin_port);
}

absl::Status BindError(int port, int error) {
  if (error == EADDRINUSE && port == 0) return absl::UnavailableError("no TCP port of this machine is free");
  if (error == EADDRINUSE) {
    return absl::UnavailableError(
        absl::StrCat("port ", port,
                     " is in use by another program; choose another with --master-port or MASTER_PORT, or on one "
                     "machine give none: a free one is taken then"));
  }
  return absl::ErrnoToStatus(error, absl::StrCat("cannot bind port ", port));
}

// Binds `port` (0: any that is free) at every address of the machine, and keeps it.
absl::StatusOr<UniqueFd> BindEverywhere(int port) {
  absl::StatusOr<UniqueFd> socket = OpenSocket(AF_INET6);
  if (socket.ok()) {
    const int error = Bind(*socket, AddressOf(in6addr_any), port);
    if (error == 0) return socket;
    if (error != EADDRNOTAVAIL) return BindError(port, error);
  }
  // A kernel without IPv6 refuses the socket; one on which it is disabled, the address.
  ABSL_ASSIGN_OR_RETURN(socket, OpenSocket(AF_INET));
  const int error = Bind(*socket, AddressOf(in_addr{htonl(INADDR_ANY)}), port);
  if (error != 0) return BindError(port, error);
  return socket;
}

// Binds `port` at those of `addresses` that this machine has: there may be no IPv6. Empty if it has none of them.
absl::StatusOr<std::vector<UniqueFd>> BindAt(const std::vector<SocketAddress>& addresses, int port) {
  std::vector<UniqueFd> sockets;
  for (const SocketAddress& address : addresses) {
    absl::StatusOr<UniqueFd> socket = OpenSocket(address.any.sa_family);
    if (!socket.ok()) continue;
    const int error = Bind(*socket, address, port);
    if (error == EADDRNOTAVAIL) continue;
    if (error != 0) return BindError(port, error);
    sockets.push_back(*std::move(socket));
  }
  return sockets;
}

}  // namespace

absl::StatusOr<PortReservation> PortReservation::ChooseFree(std::string_view host) {
  ABSL_ASSIGN_OR_RETURN(const UniqueFd everywhere, BindEverywhere(0));
  ABSL_ASSIGN_OR_RETURN(const int port, BoundPort(everywhere));
  return Claim(port, host);
}

absl::StatusOr<PortReservation> PortReservation::Claim(int port, std::string_view host) {
  ABSL_ASSIGN_OR_RETURN(std::vector<UniqueFd> sockets, BindAt(LoopbackAddresses(std::string(host)), port));
  if (sockets.empty()) {
    ABSL_ASSIGN_OR_RETURN(UniqueFd everywhere, BindEverywhere(port));
    sockets.push_back(std::move(everywhere));
  }
  return PortReservation(std::move(sockets), port);
}

}  // namespace cohort::launch
