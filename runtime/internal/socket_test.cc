#include "cohort/runtime/internal/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

SteadyTime Later() { return After(SteadyNow(), absl::Seconds(60)); }

TEST(SocketTest, ConnectsOverBothFamilies) {
  for (const char* address : {"127.0.0.1", "::1"}) {
    absl::StatusOr<Listener> listener = ListenAt(address);
    ASSERT_THAT(listener, IsOk());
    EXPECT_GT(listener->port, 0);
    absl::StatusOr<UniqueFd> client = ConnectTo(address, listener->port, Later());
    ASSERT_THAT(client, IsOk());
    absl::StatusOr<UniqueFd> server = AcceptFrom(listener->fd);
    ASSERT_THAT(server, IsOk());
    ASSERT_TRUE(server->is_open());
    EXPECT_EQ(send(client->get(), "x", 1, 0), 1);
    char byte = 0;
    EXPECT_EQ(recv(server->get(), &byte, 1, MSG_DONTWAIT), 1);
    EXPECT_EQ(byte, 'x');
  }
}

TEST(SocketTest, ListensNowhereElse) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  EXPECT_THAT(ConnectTo("127.0.0.2", listener->port, Later()), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(SocketTest, WithoutAConnectionThereIsNothingToAccept) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  absl::StatusOr<UniqueFd> none = AcceptFrom(listener->fd);
  ASSERT_THAT(none, IsOk());
  EXPECT_FALSE(none->is_open());
}

TEST(SocketTest, SocketsAreNotInheritedDoNotBlockAndDoNotWaitForMore) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  absl::StatusOr<UniqueFd> client = ConnectTo("127.0.0.1", listener->port, Later());
  ASSERT_THAT(client, IsOk());
  absl::StatusOr<UniqueFd> server = AcceptFrom(listener->fd);
  ASSERT_THAT(server, IsOk());
  for (int fd : {listener->fd.get(), client->get(), server->get()}) {
    EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    EXPECT_TRUE(fcntl(fd, F_GETFL) & O_NONBLOCK);
  }
  for (int fd : {client->get(), server->get()}) {
    int value = 0;
    socklen_t size = sizeof(value);
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &size), 0);
    EXPECT_NE(value, 0);
    ASSERT_EQ(getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &size), 0);
    EXPECT_NE(value, 0);
    ASSERT_EQ(getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &size), 0);
    EXPECT_EQ(value, 25000);  // milliseconds
  }
}

TEST(SocketTest, NamesAreNotLookedUp) {
  auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"localhost\""));
  EXPECT_THAT(ListenAt("localhost"), refused);
  EXPECT_THAT(ConnectTo("localhost", 80, Later()), refused);
}

TEST(SocketTest, AnAddressOfAnotherMachineCannotBeListenedAt) {
  EXPECT_THAT(ListenAt("192.0.2.1"), StatusIs(::testing::_, HasSubstr("listen at 192.0.2.1")));
}

TEST(SocketTest, NobodyThereIsAnError) {
  int port;
  {
    absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
    ASSERT_THAT(listener, IsOk());
    port = listener->port;
  }
  EXPECT_THAT(ConnectTo("127.0.0.1", port, Later()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("127.0.0.1 port")));
}

TEST(SocketTest, ConnectingEndsAtTheDeadline) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  // A deadline that has passed: also a connection that would succeed is not waited for.
  EXPECT_THAT(ConnectTo("127.0.0.1", listener->port, SteadyNow()), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(SocketTest, WithoutFileDescriptorsAcceptSaysSo) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  absl::StatusOr<UniqueFd> client = ConnectTo("127.0.0.1", listener->port, Later());
  ASSERT_THAT(client, IsOk());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  absl::StatusOr<UniqueFd> server = AcceptFrom(listener->fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(server, StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(AcceptFrom(listener->fd), IsOk()) << "the connection is still there";
}

TEST(UniqueFdTest, MovesAndCloses) {
  int number;
  {
    UniqueFd fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd.is_open());
    number = fd.get();
    UniqueFd moved = std::move(fd);
    EXPECT_FALSE(fd.is_open());
    EXPECT_EQ(moved.get(), number);
    EXPECT_NE(fcntl(number, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(number, F_GETFD), -1);
}

}  // namespace
}  // namespace cohort::internal
