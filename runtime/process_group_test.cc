#include "cohort/runtime/process_group.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// What every group promises is in internal/backend_conformance; here is what ProcessGroup adds to its backend.

TEST(WorldOfOneTest, HasNoBackendAndEveryPlaceIsTheFirst) {
  std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  EXPECT_EQ(group->rank(), 0);
  EXPECT_EQ(group->world_size(), 1);
  EXPECT_EQ(group->local_rank(), 0);
  EXPECT_EQ(group->local_world_size(), 1);
  EXPECT_TRUE(group->is_main());
  EXPECT_TRUE(group->is_local_main());
  EXPECT_EQ(group->backend_name(), "none");
  EXPECT_EQ(group->backend(), nullptr);
}

TEST(WorldOfOneTest, EveryCollectiveReturnsAtOnce) {
  std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  EXPECT_THAT(group->Barrier(), IsOk());
  EXPECT_THAT(group->Agree("step", absl::OkStatus()), IsOk());
  EXPECT_THAT(group->BroadcastBytes("bytes", "hello"), IsOkAndHolds("hello"));
  EXPECT_THAT(group->GatherBytes("bytes", "hello", 5), IsOkAndHolds(ElementsAre("hello")));
  EXPECT_THAT(group->Shutdown(), IsOk());
}

TEST(WorldOfOneTest, ErrorsReadAsInAnyOtherWorldAndLeaveTheGroupUsable) {
  std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  auto failed = StatusIs(absl::StatusCode::kDataLoss, "rank 0: oh");
  EXPECT_THAT(group->Agree("step", absl::DataLossError("oh")), failed);
  EXPECT_THAT(group->BroadcastBytes("bytes", absl::DataLossError("oh")), failed);
  EXPECT_THAT(group->GatherBytes("bytes", absl::DataLossError("oh"), 5), failed);
  EXPECT_THAT(group->GatherBytes("bytes", "123456", 5),
              StatusIs(absl::StatusCode::kInvalidArgument, "rank 0: brings 6 bytes; at most 5 are allowed"));
  EXPECT_THAT(group->Barrier(), IsOk());
}

TEST(WorldOfOneTest, NothingWorksAfterShutdownButShutdown) {
  std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  ASSERT_THAT(group->Shutdown(), IsOk());
  auto left = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("left the group"));
  EXPECT_THAT(group->Barrier(), left);
  EXPECT_THAT(group->Agree("step", absl::OkStatus()), left);
  EXPECT_THAT(group->BroadcastBytes("bytes", ""), left);
  EXPECT_THAT(group->GatherBytes("bytes", "", 5), left);
  EXPECT_THAT(group->Shutdown(), IsOk());
}

// A launch environment for the length of a test.
class LaunchedAsRank {
 public:
  LaunchedAsRank(const char* rank, const char* world_size) {
    setenv("RANK", rank, /*overwrite=*/1);
    setenv("WORLD_SIZE", world_size, /*overwrite=*/1);
    setenv("MASTER_ADDR", "127.0.0.1", /*overwrite=*/1);
    setenv("MASTER_PORT", "29500", /*overwrite=*/1);
  }
  ~LaunchedAsRank() {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  }
};

TEST(WorldOfOneFromEnvironmentTest, IsGivenToAProgramThatWasStartedAlone) {
  absl::StatusOr<std::unique_ptr<ProcessGroup>> by_hand = ProcessGroup::WorldOfOneFromEnvironment();
  ASSERT_THAT(by_hand, IsOk());
  EXPECT_EQ((*by_hand)->world_size(), 1);
  const LaunchedAsRank launched("0", "1");
  EXPECT_THAT(ProcessGroup::WorldOfOneFromEnvironment(), IsOk());
}

TEST(WorldOfOneFromEnvironmentTest, IsRefusedToOneOfSeveralRanksNamingTheTargetToAdd) {
  for (const char* rank : {"0", "1"}) {
    const LaunchedAsRank launched(rank, "2");
    EXPECT_THAT(ProcessGroup::WorldOfOneFromEnvironment().status(),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr("WORLD_SIZE=2"), HasSubstr("@cohort//runtime:init_process_group"))));
  }
}

TEST(WorldOfOneFromEnvironmentTest, SaysWhatIsWrongWithTheEnvironment) {
  const LaunchedAsRank launched("2", "2");
  EXPECT_THAT(ProcessGroup::WorldOfOneFromEnvironment().status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("RANK")));
}

// Of two ranks.
std::vector<absl::Status> RunTwo(testing::ThreadGroup::Body body) {
  return testing::ThreadGroup({.world_size = 2, .group = {.timeout = absl::Seconds(60)}}).Run(body);
}

TEST(ProcessGroupTest, ATooLongBroadcastIsTheErrorOfEveryRank) {
  std::vector<absl::Status> outcomes = RunTwo([](ProcessGroup& group) {
    std::string mine(group.is_main() ? ProcessGroup::kMaxMessageBytes + 1 : 0, 'x');
    return group.BroadcastBytes("large", std::move(mine)).status();
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kInvalidArgument,
                                      "rank 0: brings 67108865 bytes; at most 67108864 are allowed")));
}

TEST(ProcessGroupTest, WhatOtherRanksBringToABroadcastIsNotLookedAt) {
  std::vector<absl::Status> outcomes = RunTwo([](ProcessGroup& group) {
    std::string mine = group.is_main() ? "main" : std::string(ProcessGroup::kMaxMessageBytes + 1, 'x');
    absl::StatusOr<std::string> bytes = group.BroadcastBytes("bytes", std::move(mine));
    EXPECT_THAT(bytes, IsOkAndHolds("main"));
    return bytes.status();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
}

TEST(ProcessGroupTest, ATooLongGatherIsTheErrorOfEveryRankAndNamesWhoBroughtIt) {
  std::vector<absl::Status> outcomes = RunTwo(
      [](ProcessGroup& group) { return group.GatherBytes("bytes", group.is_main() ? "1234" : "12345", 4).status(); });
  EXPECT_THAT(outcomes,
              Each(StatusIs(absl::StatusCode::kInvalidArgument, "rank 1: brings 5 bytes; at most 4 are allowed")));
}

TEST(ProcessGroupTest, TheGatheredBytesAreForTheMainRankAlone) {
  std::vector<absl::Status> outcomes = RunTwo([](ProcessGroup& group) {
    absl::StatusOr<std::vector<std::string>> bytes = group.GatherBytes("bytes", absl::StrCat("of ", group.rank()), 4);
    if (group.is_main()) {
      EXPECT_THAT(bytes, IsOkAndHolds(ElementsAre("of 0", "of 1")));
    } else {
      EXPECT_THAT(bytes, IsOkAndHolds(IsEmpty()));
    }
    return bytes.status();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
}

TEST(ProcessGroupTest, ALimitThatNobodyMaySetIsRefused) {
  for (int64_t limit : {int64_t{-1}, ProcessGroup::kMaxMessageBytes + 1}) {
    std::vector<absl::Status> outcomes =
        RunTwo([limit](ProcessGroup& group) { return group.GatherBytes("bytes", "", limit).status(); });
    EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr(absl::StrCat(limit)), HasSubstr("0 to 67108864")))));
  }
}

TEST(ProcessGroupTest, RanksWithDifferentLimitsAreInDifferentOperations) {
  std::vector<absl::Status> outcomes =
      RunTwo([](ProcessGroup& group) { return group.GatherBytes("bytes", "", 4 + group.rank()).status(); });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                                      AllOf(HasSubstr("at most 4 bytes each"), HasSubstr("at most 5 bytes each")))));
}

TEST(ProcessGroupTest, ABroadcastDoesNotPairWithAnAgreementOfTheSameName) {
  std::vector<absl::Status> outcomes = RunTwo([](ProcessGroup& group) {
    return group.is_main() ? group.Agree("name", absl::OkStatus()) : group.BroadcastBytes("name", "").status();
  });
  EXPECT_THAT(
      outcomes,
      Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                    AllOf(HasSubstr("rank 0 in Agree \"name\""), HasSubstr("rank 1 in BroadcastBytes \"name\"")))));
}

TEST(ProcessGroupTest, ATooLongNameIsTheErrorOfEveryRank) {
  std::vector<absl::Status> outcomes =
      RunTwo([](ProcessGroup& group) { return group.Agree(std::string(1 << 20, 'n'), absl::OkStatus()); });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048576 bytes; at most 8192"))));
}

TEST(ProcessGroupTest, AnUnprintableNameIsShownEscaped) {
  std::vector<absl::Status> outcomes =
      RunTwo([](ProcessGroup& group) { return group.Agree(group.is_main() ? "a\nb" : "c", absl::OkStatus()); });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("\"a\\nb\""))));
}

TEST(ProcessGroupTest, TheTimeoutOfACallCountsInsteadOfTheGroups) {
  testing::ThreadGroup threads({.world_size = 2, .group = {.timeout = absl::Seconds(60)}});
  threads.FreezeAfter(1, 0);
  std::vector<absl::Status> outcomes = threads.Run([](ProcessGroup& group) {
    EXPECT_EQ(group.timeout(), absl::Seconds(60));
    return group.Agree("step", absl::OkStatus(), absl::Milliseconds(100));
  });
  EXPECT_THAT(outcomes[0], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("Agree \"step\" waited ")));
}

TEST(ProcessGroupTest, AnAbortIsTheErrorOfTheOthersAndOfWhatTheAborterDoesNext) {
  std::vector<absl::Status> outcomes = RunTwo([](ProcessGroup& group) {
    return group.is_main() ? group.Agree("step", absl::OkStatus()) : group.Abort(absl::DataLossError("no batch"));
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kDataLoss, "rank 1: no batch")));
}

TEST(ProcessGroupTest, AnAbortInAWorldOfOneOnlyReturnsTheError) {
  std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  EXPECT_THAT(group->Abort(absl::DataLossError("no batch")),
              StatusIs(absl::StatusCode::kDataLoss, "rank 0: no batch"));
  EXPECT_THAT(group->Barrier(), IsOk());
}

TEST(ProcessGroupTest, AGroupThatIsDroppedHasLeft) {
  std::vector<absl::Status> outcomes = RunTwo(
      [](ProcessGroup& group) { return group.rank() == 1 ? absl::OkStatus() : group.Agree("step", absl::OkStatus()); });
  EXPECT_THAT(outcomes,
              ElementsAre(StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 1 has left")), IsOk()));
}

}  // namespace
}  // namespace cohort
