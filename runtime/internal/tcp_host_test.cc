#include "cohort/runtime/internal/tcp_host.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/frame_channel.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr char kToken[] = "0123456789abcdef0123456789abcdef";

// Somebody who connects and says what the test says.
class Client {
 public:
  explicit Client(int port) : channel_(Connect(port), kMaxBodyBytes) {}

  void Send(const ControlMessage& message) { channel_.Send(std::make_shared<const std::string>(EncodeFrame(message))); }
  void SendBytes(std::string bytes) { channel_.Send(std::make_shared<const std::string>(std::move(bytes))); }

  // The next message; nullopt if the host has closed the connection.
  std::optional<ControlMessage> Hear() {
    while (heard_.empty()) {
      pollfd poll_fd = {.fd = channel_.fd(), .events = POLLIN, .revents = 0};
      ABSL_CHECK_EQ(poll(&poll_fd, 1, 60'000), 1) << "a minute without an answer";
      if (!channel_.Receive(heard_).ok() && heard_.empty()) return std::nullopt;
    }
    ControlMessage message = std::move(heard_.front());
    heard_.erase(heard_.begin());
    return message;
  }

  // The cause in the next message, which must be a Poison.
  absl::Status HearPoison() {
    std::optional<ControlMessage> message = Hear();
    if (!message.has_value()) return absl::AbortedError("the connection was closed");
    const Poison* poison = std::get_if<Poison>(&*message);
    return poison == nullptr ? absl::OkStatus() : poison->cause;
  }

 private:
  static UniqueFd Connect(int port) {
    absl::StatusOr<UniqueFd> fd = ConnectTo("127.0.0.1", port, After(SteadyNow(), kLong));
    ABSL_CHECK(fd.ok()) << fd.status();
    return *std::move(fd);
  }

  FrameChannel channel_;
  std::vector<ControlMessage> heard_;
};

// Rank 0 of a group, with its control plane.
class TcpHostTest : public ::testing::Test {
 protected:
  // Listens, and answers nobody yet.
  std::unique_ptr<TcpHost> Listen(int world_size) {
    absl::StatusOr<Listener> socket = ListenAt("127.0.0.1");
    ABSL_CHECK(socket.ok()) << socket.status();
    port_ = socket->port;
    absl::StatusOr<std::unique_ptr<TcpHost>> host =
        TcpHost::Create({.world_size = world_size, .token = kToken, .run_id = "run"}, *std::move(socket));
    ABSL_CHECK(host.ok()) << host.status();
    return *std::move(host);
  }
  void Start(int world_size) { rank0_ = std::make_unique<ControlPlane>(Listen(world_size)); }

  Hello HelloOf(int rank, int world_size) {
    return {.token = kToken, .rank = rank, .world_size = world_size, .run_id = "run", .pid = 1000 + rank};
  }

  // A rendezvous of rank 0 and `client`, which shows that the client is a rank.
  void ExpectMember(Client& client, uint64_t generation) {
    client.Send(Arrive{.generation = generation, .arrival = {.operation = "step", .timeout = kLong}});
    EXPECT_THAT(rank0_->Meet({.operation = "step", .timeout = kLong}), IsOk());
    std::optional<ControlMessage> answer = client.Hear();
    ASSERT_TRUE(answer.has_value());
    ASSERT_TRUE(std::holds_alternative<Outcome>(*answer));
    EXPECT_EQ(std::get<Outcome>(*answer).generation, generation);
  }

  int port_ = 0;
  std::unique_ptr<ControlPlane> rank0_;
};

TEST_F(TcpHostTest, AHelloWithTheTokenMakesARank) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  ExpectMember(client, 2);
}

// ---- Strangers ----

TEST_F(TcpHostTest, StrangersAreDroppedWithoutAnAnswerAndDisturbNobody) {
  Start(2);
  auto expect_dropped = [&](const std::function<void(Client&)>& say) {
    Client stranger(port_);
    say(stranger);
    EXPECT_FALSE(stranger.Hear().has_value());
  };
  Hello wrong = HelloOf(1, 2);
  wrong.token = "0123456789abcdef0123456789abcdee";
  expect_dropped([&](Client& c) { c.Send(wrong); });
  wrong.token = std::string(kToken).substr(1);
  expect_dropped([&](Client& c) { c.Send(wrong); });
  wrong.token = "";
  expect_dropped([&](Client& c) { c.Send(wrong); });
  expect_dropped([](Client& c) { c.Send(Arrive{.generation = 1}); });
  expect_dropped([](Client& c) { c.Send(Poison{absl::InternalError("ha")}); });
  expect_dropped([](Client& c) { c.SendBytes("GET / HTTP/1.1\r\n\r\n"); });
  expect_dropped([](Client& c) { c.SendBytes(std::string("co\x01\x00\xff\xff\xff\x7f", 8)); });
  wrong = HelloOf(1, 2);
  wrong.run_id = std::string(2 * kMaxHelloBytes, 'x');
  expect_dropped([&](Client& c) { c.Send(wrong); });

  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  EXPECT_THAT(rank0_->first_error(), IsOk());
}

TEST_F(TcpHostTest, ASilentConnectionHoldsUpNobody) {
  Start(2);
  Client silent(port_);
  Client half(port_);
  half.SendBytes(EncodeFrame(HelloOf(1, 2)).substr(0, 20));
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
}

TEST_F(TcpHostTest, OfTooManyStrangersTheOldestGoes) {
  Start(2);
  Client oldest(port_);
  std::vector<std::unique_ptr<Client>> others;
  for (int i = 0; i < 66; ++i) others.push_back(std::make_unique<Client>(port_));
  EXPECT_FALSE(oldest.Hear().has_value());
  others.back()->Send(HelloOf(1, 2));
  ExpectMember(*others.back(), 1);
}

TEST_F(TcpHostTest, ARankThatCameBeforeManyStrangersIsHeard) {
  std::unique_ptr<TcpHost> host = Listen(2);
  // All of them wait to be accepted.
  Client client(port_);
  client.Send(HelloOf(1, 2));
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(std::make_unique<Client>(port_));
  rank0_ = std::make_unique<ControlPlane>(std::move(host));
  EXPECT_FALSE(strangers.front()->Hear().has_value());
  ExpectMember(client, 1);
}

TEST_F(TcpHostTest, ARankDoesNotGoWhenStrangersCome) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  std::vector<std::unique_ptr<Client>> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(std::make_unique<Client>(port_));
  EXPECT_FALSE(strangers.front()->Hear().has_value());
  ExpectMember(client, 2);
}

TEST_F(TcpHostTest, WithoutFileDescriptorsTheMeetingFails) {
  std::unique_ptr<TcpHost> host = Listen(2);
  Client client(port_);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  rank0_ = std::make_unique<ControlPlane>(std::move(host));
  absl::Status status = rank0_->Meet({.operation = "step", .timeout = kLong}).status();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("Too many open files")));
}

// ---- Newcomers that are wrong ----

TEST_F(TcpHostTest, ARankNumberUsedTwiceIsTheNewcomersError) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  Client again(port_);
  Hello hello = HelloOf(1, 2);
  hello.pid = 77;
  again.Send(hello);
  again.Send(Arrive{.generation = 1, .arrival = {.operation = "the meeting", .timeout = kLong}});
  EXPECT_THAT(again.HearPoison(), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "rank 1 is held by process 1001 already; process 77 claims it too"));
  EXPECT_FALSE(again.Hear().has_value());
  ExpectMember(client, 2);
}

TEST_F(TcpHostTest, RankZeroIsTaken) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(0, 2));
  EXPECT_THAT(client.HearPoison(), StatusIs(absl::StatusCode::kInvalidArgument,
                                            HasSubstr(absl::StrCat("rank 0 is held by process ", getpid()))));
  EXPECT_THAT(rank0_->first_error(), IsOk());
}

TEST_F(TcpHostTest, ARankOutOfRangeIsRefused) {
  Start(2);
  for (int rank : {2, -1, 1 << 30}) {
    Client client(port_);
    client.Send(HelloOf(rank, 2));
    EXPECT_THAT(client.HearPoison(), StatusIs(absl::StatusCode::kInvalidArgument,
                                              AllOf(HasSubstr(absl::StrCat("rank ", rank, " ")), HasSubstr("0 to 1"))));
  }
  EXPECT_THAT(rank0_->first_error(), IsOk());
}

TEST_F(TcpHostTest, ARankOfAnotherRunLearnsNothingElseAndDisturbsNobody) {
  Start(2);
  for (Hello hello : {HelloOf(1, 2), HelloOf(1, 3), HelloOf(0, 2), HelloOf(7, 2)}) {
    hello.run_id = "other";
    Client client(port_);
    client.Send(hello);
    EXPECT_THAT(client.HearPoison(),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("rank 0 belongs to another run, ")));
    EXPECT_FALSE(client.Hear().has_value());
  }
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
}

TEST_F(TcpHostTest, ADisagreementAboutTheWorldSizeEndsTheMeetingForAll) {
  Start(3);
  Client client(port_);
  client.Send(HelloOf(1, 3));
  Client other(port_);
  other.Send(HelloOf(2, 4));
  auto disagree = StatusIs(absl::StatusCode::kInvalidArgument, "rank 2 was told a world size of 4, rank 0 one of 3");
  EXPECT_THAT(other.HearPoison(), disagree);
  EXPECT_THAT(client.HearPoison(), disagree);
  EXPECT_THAT(rank0_->Meet({.operation = "step", .timeout = kLong}), disagree);
}

TEST_F(TcpHostTest, AfterTheMeetingAWrongWorldSizeIsTheNewcomersError) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  Client other(port_);
  other.Send(HelloOf(2, 4));
  EXPECT_THAT(other.HearPoison(), StatusIs(absl::StatusCode::kInvalidArgument));
  ExpectMember(client, 2);
}

// ---- Ranks that go wrong ----

TEST_F(TcpHostTest, ARankWhoseConnectionClosesIsGone) {
  Start(3);
  auto client = std::make_unique<Client>(port_);
  client->Send(HelloOf(1, 3));
  Client witness(port_);
  witness.Send(HelloOf(2, 3));
  client = nullptr;
  auto gone = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 (pid 1001) is gone"));
  EXPECT_THAT(witness.HearPoison(), gone);
  EXPECT_THAT(rank0_->Meet({.operation = "step", .timeout = kLong}), gone);
}

TEST_F(TcpHostTest, ARankThatSpeaksNonsenseIsGone) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  client.SendBytes("GET / HTTP/1.1\r\n\r\n");
  EXPECT_THAT(rank0_->Meet({.operation = "step", .timeout = kLong}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 ")));
  EXPECT_FALSE(client.Hear().has_value());
}

TEST_F(TcpHostTest, ARankThatDoesNotFollowTheProtocolIsGone) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  client.Send(Arrive{.generation = 5, .arrival = {.operation = "step", .timeout = kLong}});
  EXPECT_THAT(rank0_->Meet({.operation = "step", .timeout = kLong}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 ")));
}

TEST_F(TcpHostTest, ARankThatDoesNotReadHoldsUpNobody) {
  Start(3);
  Client slow(port_);
  slow.Send(HelloOf(1, 3));
  Client client(port_);
  client.Send(HelloOf(2, 3));
  // More than sockets hold. The slow rank arrives, and reads nothing until the others have gone on.
  const std::string payload(32 << 20, 'x');
  Arrive arrive{.generation = 1, .arrival = {.operation = "large", .delivery = Delivery::kMainToAll, .timeout = kLong}};
  slow.Send(arrive);
  client.Send(arrive);
  absl::StatusOr<std::vector<std::string>> mine =
      rank0_->Meet({.operation = "large", .delivery = Delivery::kMainToAll, .payload = payload, .timeout = kLong});
  ASSERT_THAT(mine, IsOk());
  for (Client* reader : {&client, &slow}) {
    std::optional<ControlMessage> answer = reader->Hear();
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(std::get<Outcome>(*answer).payloads.at(0), payload);
  }
}

// ---- Rank 0 goes ----

TEST_F(TcpHostTest, IdleRanksHearThatRankZeroHasLeft) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  rank0_ = nullptr;
  EXPECT_THAT(client.HearPoison(), StatusIs(absl::StatusCode::kFailedPrecondition, "rank 0 has left the group"));
  EXPECT_FALSE(client.Hear().has_value());
}

TEST_F(TcpHostTest, RanksThatHaveLeftHearNothingMore) {
  Start(2);
  Client client(port_);
  client.Send(HelloOf(1, 2));
  ExpectMember(client, 1);
  client.Send(Goodbye{});
  std::optional<ControlMessage> farewell = client.Hear();
  ASSERT_TRUE(farewell.has_value());
  EXPECT_TRUE(std::holds_alternative<Farewell>(*farewell));
  EXPECT_THAT(rank0_->Leave(kLong), IsOk());
  rank0_ = nullptr;
  EXPECT_FALSE(client.Hear().has_value());
}

}  // namespace
}  // namespace cohort::internal
