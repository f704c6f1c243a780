#include "cohort/runtime/internal/tcp_control_plane.h"

#include <memory>
#include <string>
#include <thread>  // NOLINT
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

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

TEST(TcpControlPlaneTest, MissingRanksAreNamedAtTheDeadline) {
  Board board;
  RunRanks({0, 2}, [&](int rank) {
    absl::StatusOr<Meeting> meeting = MeetAt(board, OptionsOf(rank, 4, kShort));
    EXPECT_THAT(meeting, StatusIs(absl::StatusCode::kDeadlineExceeded,
                                  AllOf(HasSubstr("missing: ranks 1 and 3"), HasSubstr("world size 4"),
                                        HasSubstr("127.0.0.1:29500"))));
  });
}

}  // namespace
}  // namespace cohort::internal
