// Every test has a loopback interface of its own and no way out: two tests may use one port at a time, and none can
// reach, or be reached from, the machine's network.

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

sockaddr_in Address(const char* host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host, &address.sin_addr);
  return address;
}

int ErrnoOf(int result) { return result == 0 ? 0 : errno; }

TEST(OwnLoopbackTest, IsTheOnlyInterfaceWithAnAddress) {
  ifaddrs* all = nullptr;
  ASSERT_EQ(getifaddrs(&all), 0) << strerror(errno);
  std::set<std::string> names;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const int family = entry->ifa_addr == nullptr ? AF_UNSPEC : entry->ifa_addr->sa_family;
    if (family == AF_INET || family == AF_INET6) names.insert(entry->ifa_name);
  }
  freeifaddrs(all);
  EXPECT_THAT(names, testing::ElementsAre("lo"));
}

TEST(OwnLoopbackTest, HasNoRouteOut) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  ASSERT_GE(fd, 0) << strerror(errno);
  const sockaddr_in outside = Address("192.0.2.1", 9);  // set aside for documentation: belongs to nobody
  EXPECT_EQ(ErrnoOf(connect(fd, reinterpret_cast<const sockaddr*>(&outside), sizeof(outside))), ENETUNREACH);
  close(fd);
}

TEST(OwnLoopbackTest, HasPyTorchsDefaultPortFree) {
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && std::string(rank) != "0") return;  // the ranks of a job share one loopback: one of them binds
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(fd, 0) << strerror(errno);
  const sockaddr_in address = Address("127.0.0.1", 29500);
  EXPECT_EQ(ErrnoOf(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address))), 0) << strerror(errno);
  EXPECT_EQ(ErrnoOf(listen(fd, 1)), 0) << strerror(errno);
  close(fd);
}

}  // namespace
