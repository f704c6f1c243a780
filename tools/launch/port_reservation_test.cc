#include "cohort/tools/launch/port_reservation.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::StartsWith;

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A socket of another program; empty if it cannot have the port.
UniqueFd Bind(int port, bool reuse_address) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  if (reuse_address) setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const sockaddr_in address = Loopback(port);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return UniqueFd();
  return fd;
}

int PortOf(const UniqueFd& fd) {
  sockaddr_in address = {};
  socklen_t length = sizeof(address);
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

bool Connects(int port) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Loopback(port);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

TEST(PortReservationTest, AServerOfTheJobCanListenWhileThePortIsHeld) {
  const absl::StatusOr<PortReservation> reservation = PortReservation::ChooseFree();
  ASSERT_THAT(reservation, IsOk());
  const UniqueFd server = Bind(reservation->port(), /*reuse_address=*/true);
  ASSERT_TRUE(server);
  ASSERT_EQ(listen(server.get(), 1), 0);
  EXPECT_TRUE(Connects(reservation->port()));
}

TEST(PortReservationTest, NobodyElseCanBindThePortUntilItIsReleased) {
  std::optional<PortReservation> reservation = *PortReservation::ChooseFree();
  const int port = reservation->port();
  EXPECT_FALSE(Bind(port, /*reuse_address=*/false));
  reservation.reset();
  EXPECT_TRUE(Bind(port, /*reuse_address=*/false));
}

TEST(PortReservationTest, AReservedPortAcceptsNoConnection) {
  EXPECT_FALSE(Connects(PortReservation::ChooseFree()->port()));
}

TEST(PortReservationTest, NoPortIsChosenTwice) {
  // Also against sockets that choose for themselves, SO_REUSEADDR or not.
  std::vector<PortReservation> reservations;
  std::vector<UniqueFd> others;
  std::set<int> ports;
  constexpr int kRounds = 200;
  for (int i = 0; i < kRounds; ++i) {
    absl::StatusOr<PortReservation> reservation = PortReservation::ChooseFree();
    ASSERT_THAT(reservation, IsOk());
    ports.insert(reservation->port());
    reservations.push_back(*std::move(reservation));
    others.push_back(Bind(0, /*reuse_address=*/i % 2 == 0));
    ports.insert(PortOf(others.back()));
  }
  EXPECT_EQ(ports.size(), 2 * kRounds);
}

TEST(PortReservationTest, APortOnWhichSomebodyListensIsRefusedByName) {
  const UniqueFd server = Bind(0, /*reuse_address=*/true);
  ASSERT_EQ(listen(server.get(), 1), 0);
  const int port = PortOf(server);
  EXPECT_THAT(PortReservation::Claim(port),
              StatusIs(absl::StatusCode::kUnavailable,
                       StartsWith(absl::StrCat(
                           "port ", port, " is in use by another program; choose another with --master-port"))));
}

TEST(PortReservationTest, AFreePortThatTheUserNamedIsClaimed) {
  // Somebody who holds it as we do is not in the way: known to be free of anybody else.
  const absl::StatusOr<PortReservation> chosen = PortReservation::ChooseFree();
  ASSERT_THAT(chosen, IsOk());
  std::optional<PortReservation> claimed = *PortReservation::Claim(chosen->port());
  EXPECT_EQ(claimed->port(), chosen->port());
}

// --- Where the master is loopback.

// Whether this machine has an address that is neither loopback nor the wildcard is not for a test to ask: 127.0.0.2
// stands for any other address.
sockaddr_in Address(const char* host, int port) {
  sockaddr_in address = Loopback(port);
  EXPECT_EQ(inet_pton(AF_INET, host, &address.sin_addr), 1);
  return address;
}

UniqueFd ListenAt(const sockaddr_in& address) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return UniqueFd();
  return listen(fd.get(), 1) == 0 ? std::move(fd) : UniqueFd();
}

TEST(LoopbackReservationTest, WhoListensAtAnotherAddressIsNotInTheWay) {
  const UniqueFd other = ListenAt(Address("127.0.0.2", 0));
  ASSERT_TRUE(other);
  const int port = PortOf(other);
  EXPECT_THAT(PortReservation::Claim(port, "127.0.0.1"), IsOk());
  for (const char* host : {"localhost", "LOCALHOST", "localhost.", "127.0.0.1", "127.1", "::ffff:127.0.0.1"}) {
    EXPECT_THAT(PortReservation::Claim(port, host), IsOk()) << host;
  }
  EXPECT_THAT(PortReservation::Claim(port, "127.0.0.2"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(PortReservation::Claim(port, "some-name"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(PortReservation::Claim(port), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(LoopbackReservationTest, WhoListensEverywhereIs) {
  const UniqueFd other = ListenAt(Address("0.0.0.0", 0));
  ASSERT_TRUE(other);
  for (const char* host : {"127.0.0.1", "localhost", "127.9.9.9"}) {
    EXPECT_THAT(PortReservation::Claim(PortOf(other), host), StatusIs(absl::StatusCode::kUnavailable)) << host;
  }
}

TEST(LoopbackReservationTest, IsHeldAtLoopbackAlone) {
  const absl::StatusOr<PortReservation> reservation = PortReservation::ChooseFree("127.0.0.1");
  ASSERT_THAT(reservation, IsOk());
  EXPECT_FALSE(Bind(reservation->port(), /*reuse_address=*/false)) << "127.0.0.1";
  const UniqueFd elsewhere(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = Address("127.0.0.2", reservation->port());
  EXPECT_EQ(bind(elsewhere.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

// c10d's own servers listen at the wildcard wherever their master is.
TEST(LoopbackReservationTest, AServerOfTheJobCanListenEverywhere) {
  for (const char* host : {"127.0.0.1", "localhost", "::1", "node-0"}) {
    const absl::StatusOr<PortReservation> reservation = PortReservation::ChooseFree(host);
    ASSERT_THAT(reservation, IsOk()) << host;
    EXPECT_TRUE(ListenAt(Address("0.0.0.0", reservation->port()))) << host;
  }
}

TEST(LoopbackReservationTest, AChosenPortIsFreeEverywhere) {
  std::set<int> taken;
  std::vector<UniqueFd> others;
  for (int i = 0; i < 100; ++i) {
    others.push_back(ListenAt(Address("127.0.0.2", 0)));
    taken.insert(PortOf(others.back()));
  }
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(taken.contains(PortReservation::ChooseFree("127.0.0.1")->port()));
}

}  // namespace
}  // namespace cohort::launch
