// File: endpoint.h
//
// Endpoint: an IP address and a port, as numbers. Names are looked up once, here, so that nothing below asks a DNS
// server.

#ifndef COHORT_RUNTIME_INTERNAL_ENDPOINT_H_
#define COHORT_RUNTIME_INTERNAL_ENDPOINT_H_

#include <sys/socket.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::internal {

class Endpoint {
 public:
  // `address` must be IPv4 or IPv6.
  Endpoint(const sockaddr* address, socklen_t size);

  // Every address (":::" and "0.0.0.0") of one family, with `port`.
  static Endpoint Wildcard(int family, int port);

  // The address of this or the other side of a connected or listening socket.
  static absl::StatusOr<Endpoint> OfSocket(int fd);
  static absl::StatusOr<Endpoint> OfPeer(int fd);

  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  int port() const;
  bool is_loopback() const;
  // False for what stands for many addresses: "0.0.0.0", "::", and those of multicast and broadcast.
  bool is_one_host() const;

  Endpoint WithPort(int port) const;

  // Numbers without port and brackets: "127.0.0.1", "::1", "fe80::1%eth0".
  std::string host() const;
  // "127.0.0.1:29500", "[::1]:29500".
  std::string ToString() const;

  bool operator==(const Endpoint& other) const { return ToString() == other.ToString(); }

 private:
  sockaddr_storage storage_ = {};
  socklen_t size_;
};

// Local. Every address of `host` in the resolver's order. Numbers need no look-up; a name may block as long as the
// system's resolver does.
//
// Errors: NotFound (the resolver's reason, with `host`).
absl::StatusOr<std::vector<Endpoint>> Resolve(const std::string& host, int port);

// Local. An address of each of the interfaces in `names`, separated by commas ("eth0,eth1"): the first of IPv4 if it has one,
// or of IPv6 that is not link-local.
//
// Errors: NotFound, naming the interface that is not there, is down, or has no address, and what this machine has.
absl::StatusOr<std::vector<Endpoint>> InterfaceAddresses(std::string_view names);

// Local. The first address of this machine that others may reach: up, not loopback and not link-local.
//
// Errors: NotFound.
absl::StatusOr<Endpoint> FirstRoutableAddress(int family);

// Local. Whether a loopback interface is up; in a new network namespace it is not, and then no loopback address leads anywhere.
bool IsLoopbackUp();

// Local. The network interfaces of this machine, for errors: "lo 127.0.0.1 ::1, eth0 10.0.0.5, eth1 (down)".
std::string DescribeInterfaces();

// Local. The same on two processes exactly if they share a network stack, so that loopback connects them: the kernel's
// boot and the network namespace.
std::string NetworkStackId();

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_ENDPOINT_H_
