#include "cohort/runtime/internal/tcp_control_plane.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>  // NOLINT
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/barrier.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/tcp_link.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// Where no rank is missing by construction, so that a test that needs it has found a bug.
constexpr absl::Duration kLong = absl::Seconds(60);
// Where a rank is missing by construction.
constexpr absl::Duration kShort = absl::Seconds(2);

// Where rank 0 publishes.
class Board {
 public:
  absl::Status Publish(std::string_view endpoint) {
    absl::MutexLock lock(mutex_);
    endpoint_ = endpoint;
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> LookUp(absl::Duration timeout) {
    absl::MutexLock lock(mutex_);
    auto published = [this] { return !endpoint_.empty(); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&published), timeout)) {
      return absl::DeadlineExceededError("nothing was published");
    }
    return endpoint_;
  }

 private:
  absl::Mutex mutex_;
  std::string endpoint_;
};

MeetingOptions OptionsOf(int rank, int world_size, absl::Duration timeout = kLong) {
  return {.rank = rank,
          .world_size = world_size,
          .run_id = "test",
          .timeout = timeout,
          .facts = absl::StrCat("facts of ", rank),
          .meeting_point = "127.0.0.1:29500"};
}

absl::StatusOr<Meeting> MeetAt(Board& board, const MeetingOptions& options) {
  if (options.rank == 0) {
    return HostMeeting(options, "127.0.0.1", [&](std::string_view endpoint) { return board.Publish(endpoint); });
  }
  return JoinMeeting(options, [&](absl::Duration timeout) { return board.LookUp(timeout); });
}

// Runs `body` once for each of `ranks`, in a thread each.
void RunRanks(const std::vector<int>& ranks, const std::function<void(int rank)>& body) {
  std::vector<std::thread> threads;
  for (int rank : ranks) threads.emplace_back([&body, rank] { body(rank); });
  for (std::thread& thread : threads) thread.join();
}

TEST(TcpControlPlaneTest, EveryRankLearnsWhatTheOthersSayAboutThemselves) {
  Board board;
  RunRanks({0, 1, 2}, [&](int rank) {
    absl::StatusOr<Meeting> meeting = MeetAt(board, OptionsOf(rank, 3));
    ASSERT_THAT(meeting, IsOk());
    ASSERT_THAT(meeting->peers, SizeIs(3));
    for (int peer = 0; peer < 3; ++peer) {
      EXPECT_EQ(meeting->peers[peer].facts, absl::StrCat("facts of ", peer));
      EXPECT_EQ(meeting->peers[peer].machine, meeting->peers[0].machine);
      EXPECT_NE(meeting->peers[peer].machine, "");
    }
    EXPECT_THAT(meeting->control_plane->Leave(kLong), IsOk());
  });
}

TEST(TcpControlPlaneTest, PayloadsArriveAtEveryRank) {
  Board board;
  RunRanks({0, 1, 2}, [&](int rank) {
    absl::StatusOr<Meeting> meeting = MeetAt(board, OptionsOf(rank, 3));
    ASSERT_THAT(meeting, IsOk());
    absl::StatusOr<std::vector<std::string>> all = meeting->control_plane->Meet(
        {.operation = "all", .delivery = Delivery::kAllToAll, .payload = absl::StrCat(rank), .timeout = kLong});
    ASSERT_THAT(all, IsOk());
    EXPECT_THAT(*all, ElementsAre("0", "1", "2"));
    EXPECT_THAT(meeting->control_plane->Leave(kLong), IsOk());
  });
}

// ---- Who does not come ----

TEST(TcpControlPlaneTest, MissingRanksAreNamedAtTheDeadline) {
  Board board;
  RunRanks({0, 2}, [&](int rank) {
    EXPECT_THAT(
        MeetAt(board, OptionsOf(rank, 4, kShort)),
        StatusIs(
            absl::StatusCode::kDeadlineExceeded,
            AllOf(StartsWith("the meeting waited "),
                  EndsWith("; missing: ranks 1 and 3 (has not come) (world size 4, meeting at 127.0.0.1:29500)"))));
  });
}

TEST(TcpControlPlaneTest, AMissingRankZeroIsNamedAtTheDeadline) {
  Board board;
  RunRanks({1, 2}, [&](int rank) {
    EXPECT_THAT(MeetAt(board, OptionsOf(rank, 3, absl::Milliseconds(100))),
                StatusIs(absl::StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("missing: rank 0"), HasSubstr("world size 3"), HasSubstr("127.0.0.1:29500"))));
  });
}

TEST(TcpControlPlaneTest, AMissingRankZeroThatHadPublishedIsNamedAtTheDeadline) {
  Board board;
  int port;
  {
    absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
    ASSERT_THAT(listener, IsOk());
    port = listener->port;
  }
  ASSERT_THAT(board.Publish(absl::StrCat("127.0.0.1 ", port, " token")), IsOk());
  EXPECT_THAT(MeetAt(board, OptionsOf(1, 2, absl::Milliseconds(200))),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("missing: rank 0")));
}

TEST(TcpControlPlaneTest, TheEarliestDeadlineCountsForAll) {
  Board board;
  RunRanks({0, 1}, [&](int rank) {
    EXPECT_THAT(MeetAt(board, OptionsOf(rank, 3, rank == 0 ? kLong : absl::Milliseconds(200))),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("missing: rank 2")));
  });
}

TEST(TcpControlPlaneTest, ALateRankIsWaitedFor) {
  Board board;
  RunRanks({0, 1, 2}, [&](int rank) {
    if (rank == 2) {
      // The others cannot be seen waiting; that rank 0 has published is as near as it gets.
      EXPECT_THAT(board.LookUp(kLong), IsOk());
    }
    absl::StatusOr<Meeting> meeting = MeetAt(board, OptionsOf(rank, 3));
    ASSERT_THAT(meeting, IsOk());
    EXPECT_THAT(meeting->control_plane->Leave(kLong), IsOk());
  });
}

TEST(TcpControlPlaneTest, WhatPublishingFailsWithIsReturned) {
  EXPECT_THAT(HostMeeting(OptionsOf(0, 2), "127.0.0.1", [](std::string_view) { return absl::DataLossError("full"); }),
              StatusIs(absl::StatusCode::kDataLoss, "full"));
  EXPECT_THAT(JoinMeeting(OptionsOf(1, 2),
                          [](absl::Duration) -> absl::StatusOr<std::string> { return absl::DataLossError("lost"); }),
              StatusIs(absl::StatusCode::kDataLoss, "lost"));
}

TEST(TcpControlPlaneTest, WhatIsNoEndpointIsRefused) {
  for (std::string text : {"", "127.0.0.1", "127.0.0.1 29500", "127.0.0.1 0 token", "127.0.0.1 65536 token",
                           "127.0.0.1 x token", "localhost 29500 token", "127.0.0.1 29500 token more"}) {
    EXPECT_THAT(
        JoinMeeting(OptionsOf(1, 2), [&](absl::Duration) { return text; }),
        StatusIs(absl::StatusCode::kInvalidArgument, AnyOf(HasSubstr("no endpoint"), HasSubstr("not a numeric"))))
        << text;
  }
}

TEST(TcpControlPlaneTest, TheEndpointHoldsALongTokenThatIsNeverTheSame) {
  std::set<std::string> tokens;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(HostMeeting(OptionsOf(0, 2), "127.0.0.1",
                            [&](std::string_view endpoint) {
                              tokens.insert(std::string(endpoint.substr(endpoint.rfind(' ') + 1)));
                              return absl::CancelledError("enough");
                            }),
                StatusIs(absl::StatusCode::kCancelled));
  }
  EXPECT_THAT(tokens, SizeIs(3));
  EXPECT_THAT(tokens, Each(SizeIs(32)));
}

// ---- Who does not belong ----

TEST(TcpControlPlaneTest, ARankNumberUsedTwiceIsAnErrorOnOneOfThem) {
  Board board;
  std::atomic<int> num_ok = 0;
  std::atomic<int> num_refused = 0;
  absl::Notification refused;
  RunRanks({0, 1, 1}, [&](int rank) {
    absl::StatusOr<Meeting> meeting = MeetAt(board, OptionsOf(rank, 2));
    if (!meeting.ok()) {
      EXPECT_THAT(meeting, StatusIs(absl::StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr("rank 1 is held by process"), HasSubstr(absl::StrCat(getpid())))));
      ++num_refused;
      refused.Notify();
      return;
    }
    refused.WaitForNotification();
    EXPECT_THAT(meeting->control_plane->Meet({.operation = "step", .timeout = kLong}), IsOk());
    EXPECT_THAT(meeting->control_plane->Leave(kLong), IsOk());
    ++num_ok;
  });
  EXPECT_EQ(num_ok, 2);
  EXPECT_EQ(num_refused, 1);
}

TEST(TcpControlPlaneTest, ADisagreementAboutTheWorldSizeIsEverybodysError) {
  Board board;
  RunRanks({0, 1}, [&](int rank) {
    EXPECT_THAT(
        MeetAt(board, OptionsOf(rank, rank == 0 ? 2 : 3)),
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rank 1 was told a world size of 3, rank 0 one of 2")));
  });
}

UniqueFd AwaitConnection(const Listener& listener) {
  pollfd poll_fd = {.fd = listener.fd.get(), .events = POLLIN, .revents = 0};
  ABSL_CHECK_EQ(poll(&poll_fd, 1, 60'000), 1);
  absl::StatusOr<UniqueFd> connection = AcceptFrom(listener.fd);
  ABSL_CHECK(connection.ok() && connection->is_open()) << connection.status();
  return *std::move(connection);
}

TEST(TcpControlPlaneTest, WhoIsDroppedUnheardComesAgain) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const std::string published = absl::StrCat("127.0.0.1 ", listener->port, " ");
  RunRanks({0, 1}, [&](int rank) {
    if (rank == 0) AwaitConnection(*listener);  // and closes it
    absl::StatusOr<Meeting> meeting = rank == 0
                                          ? HostMeeting(OptionsOf(0, 2), *std::move(listener))
                                          : JoinMeeting(OptionsOf(1, 2), [&](absl::Duration) { return published; });
    ASSERT_THAT(meeting, IsOk());
    EXPECT_THAT(meeting->control_plane->Leave(kLong), IsOk());
  });
}

TEST(TcpControlPlaneTest, WhoIsAlwaysDroppedUnheardMissesRankZeroAtTheDeadline) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const std::string published = absl::StrCat("127.0.0.1 ", listener->port, " token");
  std::atomic<bool> over = false;
  std::thread stranger([&] {
    while (!over) {
      pollfd poll_fd = {.fd = listener->fd.get(), .events = POLLIN, .revents = 0};
      if (poll(&poll_fd, 1, 10) == 1) AcceptFrom(listener->fd).IgnoreError();
    }
  });
  EXPECT_THAT(JoinMeeting(OptionsOf(1, 2, absl::Milliseconds(300)), [&](absl::Duration) { return published; }),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("missing: rank 0")));
  over = true;
  stranger.join();
}

TEST(TcpControlPlaneTest, ARankZeroThatDiesDuringTheMeetingIsGoneAtOnce) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const std::string published = absl::StrCat("127.0.0.1 ", listener->port, " token");
  RunRanks({0, 1}, [&](int rank) {
    if (rank == 0) {
      UniqueFd connection = AwaitConnection(*listener);
      listener->fd = UniqueFd();  // first, as when a process ends
      return;
    }
    EXPECT_THAT(JoinMeeting(OptionsOf(1, 2), [&](absl::Duration) { return published; }),
                StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 is gone")));
  });
}

TEST(TcpControlPlaneTest, WhoIntroducesTooFewRanksIsNotRankZero) {
  absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
  ASSERT_THAT(listener, IsOk());
  const std::string published = absl::StrCat("127.0.0.1 ", listener->port, " token");
  absl::Notification refused;
  RunRanks({0, 1}, [&](int rank) {
    if (rank == 0) {
      UniqueFd connection = AwaitConnection(*listener);
      const std::string frame = EncodeFrame(Outcome{.generation = 1, .payloads = {"1 machine facts"}});
      // Not before the guest waits for it: what comes earlier is of no rendezvous of its.
      std::string heard;
      while (heard.find("the meeting") == std::string::npos) {
        char buffer[4096];
        pollfd poll_fd = {.fd = connection.get(), .events = POLLIN, .revents = 0};
        ABSL_CHECK_EQ(poll(&poll_fd, 1, 60'000), 1);
        ssize_t size = recv(connection.get(), buffer, sizeof(buffer), 0);
        ABSL_CHECK_GT(size, 0);
        heard.append(buffer, size);
      }
      EXPECT_EQ(send(connection.get(), frame.data(), frame.size(), MSG_NOSIGNAL), static_cast<ssize_t>(frame.size()));
      refused.WaitForNotification();
      return;
    }
    EXPECT_THAT(
        JoinMeeting(OptionsOf(1, 2), [&](absl::Duration) { return published; }),
        StatusIs(absl::StatusCode::kFailedPrecondition,
                 StartsWith(absl::StrCat("what listens at 127.0.0.1:", published.substr(10, published.rfind(' ') - 10),
                                         " is not rank 0 of a cohort job"))));
    refused.Notify();
  });
}

TEST(TcpControlPlaneTest, ARankThatGoesDuringTheMeetingIsNamed) {
  Board board;
  RunRanks({0, 1}, [&](int rank) {
    if (rank == 1) {
      // Says hello, and dies before it arrives.
      absl::StatusOr<std::string> endpoint = board.LookUp(kLong);
      ASSERT_THAT(endpoint, IsOk());
      std::vector<std::string> parts = absl::StrSplit(*endpoint, ' ');
      absl::StatusOr<UniqueFd> fd = ConnectTo(parts[0], std::stoi(parts[1]), After(SteadyNow(), kLong));
      ASSERT_THAT(fd, IsOk());
      EXPECT_THAT(TcpLink::Create(*std::move(fd),
                                  {.token = parts[2], .rank = 1, .world_size = 2, .run_id = "test", .pid = 4711}),
                  IsOk());
      return;
    }
    EXPECT_THAT(MeetAt(board, OptionsOf(rank, 2)),
                StatusIs(absl::StatusCode::kUnavailable,
                         AllOf(HasSubstr("rank 1 (pid 4711) is gone"), HasSubstr("127.0.0.1:29500"))));
  });
}

// ---- A data plane's failures, explained over TCP ----

// Runs `enter` on each of three ranks that have met, and then `fail` once all have entered what they want to enter.
using Step = std::function<absl::Status(int rank, ControlPlane& control_plane)>;

std::vector<absl::Status> RunThree(const Step& enter, const Step& fail) {
  Board board;
  std::vector<absl::Status> outcomes(3);
  absl::Barrier entered(3);
  absl::Barrier over(3);
  RunRanks({0, 1, 2}, [&](int rank) {
    absl::StatusOr<Meeting> meeting = MeetAt(board, OptionsOf(rank, 3));
    ABSL_CHECK(meeting.ok()) << meeting.status();
    EXPECT_THAT(enter(rank, *meeting->control_plane), IsOk());
    entered.Block();
    outcomes[rank] = fail(rank, *meeting->control_plane);
    // Nobody leaves before all have seen what there is to see.
    over.Block();
  });
  return outcomes;
}

// The data plane of the rank's operation fails with `error`.
absl::Status Fail(ControlPlane& control_plane, const absl::Status& error) {
  absl::Status cause = control_plane.Explain("Barrier", error, absl::Seconds(2));
  control_plane.ExitData();
  return cause;
}

// The rank, whose data plane noticed nothing, hears of the failure at its next call.
absl::Status HearOfIt(ControlPlane& control_plane) {
  absl::Notification poisoned;
  control_plane.SetPoisonHandler([&](const absl::Status&) { poisoned.Notify(); });
  poisoned.WaitForNotification();
  control_plane.ExitData();
  return control_plane.EnterData("Barrier");
}

TEST(TcpControlPlaneTest, WhoIsNotInTheDataOperationIsMissing) {
  std::vector<absl::Status> outcomes =
      RunThree([](int rank, ControlPlane& c) { return rank == 1 ? absl::OkStatus() : c.EnterData("Barrier"); },
               [](int rank, ControlPlane& c) {
                 return rank == 1 ? HearOfIt(c) : Fail(c, absl::DeadlineExceededError("data plane"));
               });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      "Barrier (data operation 1) waited 2s; missing: rank 1 (in no operation)")));
}

TEST(TcpControlPlaneTest, WhoIsInAnotherOperationIsFound) {
  std::vector<absl::Status> outcomes =
      RunThree([](int rank, ControlPlane& c) { return c.EnterData(rank == 1 ? "AllReduce" : "Barrier"); },
               [](int rank, ControlPlane& c) {
                 return rank == 1 ? HearOfIt(c) : Fail(c, absl::DeadlineExceededError("data plane"));
               });
  EXPECT_THAT(outcomes,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            "the ranks are in different operations: ranks 0 and 2 in Barrier (data operation 1), "
                            "rank 1 in AllReduce (data operation 1)")));
}

TEST(TcpControlPlaneTest, AFailureOfTheDataPlaneWithoutADeathIsQuotedToAll) {
  std::vector<absl::Status> outcomes = RunThree(
      [](int, ControlPlane& c) { return c.EnterData("Barrier"); },
      [](int rank, ControlPlane& c) { return rank == 1 ? Fail(c, absl::InternalError("cable")) : HearOfIt(c); });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kInternal, "rank 1: Barrier (data operation 1): cable")));
}

}  // namespace
}  // namespace cohort::internal
