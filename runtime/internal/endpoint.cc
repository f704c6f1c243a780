#include "cohort/runtime/internal/endpoint.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cohort::internal {
namespace {

using Interfaces = std::unique_ptr<ifaddrs, decltype(&freeifaddrs)>;

absl::StatusOr<Interfaces> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::ErrnoToStatus(errno, "cannot list the network interfaces");
  }
  return Interfaces(list, &freeifaddrs);
}

int Family(const ifaddrs& entry) { return entry.ifa_addr == nullptr ? AF_UNSPEC : entry.ifa_addr->sa_family; }

Endpoint EndpointOf(const ifaddrs& entry) {
  return Endpoint(entry.ifa_addr, Family(entry) == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
}

bool IsLinkLocal(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr) >> 16) == 0xa9fe;  // 169.254.0.0/16
  }
  return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

bool IsUp(const ifaddrs& entry) { return (entry.ifa_flags & IFF_UP) != 0; }

// The entry of the address that others are most likely to reach; null if there is none.
const ifaddrs* FindInterface(const ifaddrs* list, std::string_view name) {
  const ifaddrs* found = nullptr;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (name != entry->ifa_name || !IsUp(*entry)) continue;
    if (Family(*entry) == AF_INET) return entry;
    if (Family(*entry) == AF_INET6 && (found == nullptr || IsLinkLocal(found->ifa_addr))) found = entry;
  }
  return found;
}

std::string Describe(const ifaddrs* list) {
  std::map<std::string, std::vector<std::string>> properties;
  std::vector<std::string> names;  // in the kernel's order
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    const auto [place, is_new] = properties.try_emplace(entry->ifa_name);
    if (is_new) names.push_back(entry->ifa_name);
    if (is_new && !IsUp(*entry)) place->second.push_back("(down)");
    if (Family(*entry) == AF_INET || Family(*entry) == AF_INET6) place->second.push_back(EndpointOf(*entry).host());
  }
  return absl::StrJoin(names, ", ", [&](std::string* text, const std::string& name) {
    const std::vector<std::string>& those = properties[name];
    absl::StrAppend(text, name, " ", those.empty() ? "(no address)" : absl::StrJoin(those, " "));
  });
}

}  // namespace

Endpoint::Endpoint(const sockaddr* address, socklen_t size) : size_(size) {
  ABSL_CHECK(address->sa_family == AF_INET || address->sa_family == AF_INET6)
      << "address family " << address->sa_family;
  ABSL_CHECK_LE(size, sizeof(storage_));
  std::memcpy(&storage_, address, size);
}

Endpoint Endpoint::Wildcard(int family, int port) {
  if (family == AF_INET) {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_port = htons(port);
    return Endpoint(reinterpret_cast<const sockaddr*>(&any), sizeof(any));
  }
  sockaddr_in6 any = {};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(port);
  return Endpoint(reinterpret_cast<const sockaddr*>(&any), sizeof(any));
}

absl::StatusOr<Endpoint> Endpoint::OfSocket(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return absl::ErrnoToStatus(errno, "getsockname");
  }
  return Endpoint(reinterpret_cast<const sockaddr*>(&storage), size);
}

absl::StatusOr<Endpoint> Endpoint::OfPeer(int fd) {
  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return absl::ErrnoToStatus(errno, "getpeername");
  }
  return Endpoint(reinterpret_cast<const sockaddr*>(&storage), size);
}

int Endpoint::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

Endpoint Endpoint::WithPort(int port) const {
  Endpoint copy = *this;
  if (family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&copy.storage_)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&copy.storage_)->sin6_port = htons(port);
  }
  return copy;
}

bool Endpoint::is_loopback() const {
  if (family() == AF_INET) {
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
}

bool Endpoint::is_one_host() const {
  if (family() == AF_INET) {
    const in_addr_t address = ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr);
    return address != INADDR_ANY && address != INADDR_BROADCAST && !IN_MULTICAST(address);
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
  return !IN6_IS_ADDR_UNSPECIFIED(&address) && !IN6_IS_ADDR_MULTICAST(&address);
}

std::string Endpoint::host() const {
  char host[NI_MAXHOST];
  const int error = getnameinfo(address(), size_, host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  ABSL_CHECK_EQ(error, 0) << gai_strerror(error);
  return host;
}

std::string Endpoint::ToString() const {
  return family() == AF_INET ? absl::StrCat(host(), ":", port()) : absl::StrCat("[", host(), "]:", port());
}

absl::StatusOr<std::vector<Endpoint>> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  if (error != 0) {
    const char* reason = error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error);
    return absl::NotFoundError(absl::StrCat("no address of \"", host, "\": ", reason));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  std::vector<Endpoint> endpoints;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    endpoints.emplace_back(entry->ai_addr, entry->ai_addrlen);
  }
  return endpoints;
}

absl::StatusOr<std::vector<Endpoint>> InterfaceAddresses(std::string_view names) {
  ABSL_ASSIGN_OR_RETURN(const Interfaces list, ListInterfaces());
  std::vector<Endpoint> endpoints;
  for (std::string_view name : absl::StrSplit(names, ',')) {
    const ifaddrs* entry = FindInterface(list.get(), name);
    if (entry == nullptr) {
      return absl::NotFoundError(
          absl::StrCat("no network interface \"", absl::Utf8SafeCHexEscape(name),
                       "\" that is up and has an address; this machine has: ", Describe(list.get())));
    }
    endpoints.push_back(EndpointOf(*entry));
  }
  return endpoints;
}

absl::StatusOr<Endpoint> FirstRoutableAddress(int family) {
  ABSL_ASSIGN_OR_RETURN(const Interfaces list, ListInterfaces());
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (Family(*entry) == family && IsUp(*entry) && (entry->ifa_flags & IFF_LOOPBACK) == 0 &&
        !IsLinkLocal(entry->ifa_addr)) {
      return EndpointOf(*entry);
    }
  }
  return absl::NotFoundError(absl::StrCat("no network interface with an ", family == AF_INET ? "IPv4" : "IPv6",
                                          " address that others can reach; this machine has: ", Describe(list.get())));
}

bool IsLoopbackUp() {
  const absl::StatusOr<Interfaces> list = ListInterfaces();
  if (!list.ok()) return true;  // then a connection tells
  for (const ifaddrs* entry = list->get(); entry != nullptr; entry = entry->ifa_next) {
    if ((entry->ifa_flags & IFF_LOOPBACK) != 0 && IsUp(*entry)) return true;
  }
  return false;
}

std::string DescribeInterfaces() {
  const absl::StatusOr<Interfaces> list = ListInterfaces();
  return list.ok() ? Describe(list->get()) : std::string(list.status().message());
}

std::string NetworkStackId() {
  std::string boot_id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot_id;
  struct stat network = {};
  if (stat("/proc/self/ns/net", &network) != 0) {
    network = {};  // a kernel without network namespaces: one stack a boot
  }
  return absl::StrCat(boot_id, "/", network.st_dev, "/", network.st_ino);
}

}  // namespace cohort::internal
