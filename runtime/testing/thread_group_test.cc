#include "cohort/runtime/testing/thread_group.h"

#include <atomic>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Where no rank is missing, so that a test that needs it has found a bug; and where one is missing by construction.
constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Milliseconds(200);

TEST(ThreadGroupTest, EveryRankRunsOnceAndKnowsItsPlace) {
  std::atomic<int> ranks_seen = 0;
  ThreadGroup threads({.world_size = 5, .ranks_per_node = 2, .group = {.timeout = kLong}});
  std::vector<absl::Status> outcomes = threads.Run([&](ProcessGroup& group) {
    ranks_seen |= 1 << group.rank();
    EXPECT_EQ(group.world_size(), 5);
    EXPECT_EQ(group.local_rank(), group.rank() % 2);
    EXPECT_EQ(group.local_world_size(), group.rank() == 4 ? 1 : 2);
    EXPECT_EQ(group.backend_name(), "in-process");
    return group.Barrier();
  });
  EXPECT_THAT(outcomes, ElementsAre(IsOk(), IsOk(), IsOk(), IsOk(), IsOk()));
  EXPECT_EQ(ranks_seen, 0b11111);
}

TEST(ThreadGroupTest, OutcomesStandByRank) {
  std::vector<absl::Status> outcomes = RunRanks(
      2, [](ProcessGroup& group) { return group.is_main() ? absl::OkStatus() : absl::DataLossError("from rank 1"); });
  EXPECT_THAT(outcomes, ElementsAre(IsOk(), StatusIs(absl::StatusCode::kDataLoss, "from rank 1")));
}

TEST(ThreadGroupTest, ARankDiesAfterTheCollectiveOfItsScript) {
  ThreadGroup threads({.world_size = 3, .group = {.timeout = kLong}});
  threads.KillAfter(1, 2);
  std::atomic<int> returned = 0;
  std::vector<absl::Status> outcomes = threads.Run([&](ProcessGroup& group) {
    while (true) {
      absl::Status status = group.Agree("step", absl::OkStatus());
      if (!status.ok()) return status;
      if (group.rank() == 1) ++returned;
    }
  });
  EXPECT_THAT(outcomes, ElementsAre(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 ")),
                                    StatusIs(absl::StatusCode::kCancelled),
                                    StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 "))));
  EXPECT_EQ(returned, 1) << "of the second it must not see the outcome";
}

TEST(ThreadGroupTest, ARankThatDiesBeforeAnythingRunsNothing) {
  ThreadGroup threads({.world_size = 2, .group = {.timeout = kLong}});
  threads.KillAfter(0, 0);
  std::vector<absl::Status> outcomes = threads.Run([](ProcessGroup& group) {
    EXPECT_EQ(group.rank(), 1);
    return group.Barrier();
  });
  EXPECT_THAT(outcomes, ElementsAre(StatusIs(absl::StatusCode::kCancelled),
                                    StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 "))));
}

TEST(ThreadGroupTest, AFrozenRankIsMissedAtTheDeadline) {
  ThreadGroup threads({.world_size = 3, .group = {.timeout = kShort}});
  threads.FreezeAfter(2, 1);
  std::vector<absl::Status> outcomes = threads.Run([](ProcessGroup& group) {
    EXPECT_THAT(group.Agree("first", absl::OkStatus(), kLong), IsOk());
    return group.Barrier();
  });
  auto missing = StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 2 (does not answer)"));
  EXPECT_THAT(outcomes, ElementsAre(missing, missing, StatusIs(absl::StatusCode::kCancelled)));
}

TEST(ThreadGroupTest, ARankThatCatchesItsOwnDeathStaysDead) {
  ThreadGroup threads({.world_size = 2, .group = {.timeout = kLong}});
  std::vector<absl::Status> outcomes = threads.Run([&](ProcessGroup& group) {
    if (group.rank() == 1) {
      try {
        threads.Die(group);
      } catch (...) {
      }
      EXPECT_THAT(group.Barrier(), IsOk()) << "is not reached";
    }
    return group.Barrier();
  });
  EXPECT_THAT(outcomes, ElementsAre(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 ")),
                                    StatusIs(absl::StatusCode::kCancelled)));
}

TEST(ThreadGroupTest, AllRanksMayFreeze) {
  ThreadGroup threads(2);
  std::vector<absl::Status> outcomes = threads.Run([&](ProcessGroup& group) -> absl::Status { threads.Freeze(group); });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kCancelled)));
}

}  // namespace
}  // namespace cohort::testing
