#include "cohort/runtime/internal/name_patience.h"

#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/rank_info.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using Advice = NamePatience::Advice;

const SteadyTime kStart = SteadyNow();

SteadyTime At(absl::Duration waited) { return After(kStart, waited); }

RankInfo OneMachine() { return {.world_size = 4, .local_world_size = 4}; }
RankInfo TwoMachines() { return {.world_size = 4, .local_world_size = 2}; }

TEST(NamePatienceTest, OnOneMachineEveryRankGivesUpAfterThreeSeconds) {
  for (const bool is_host : {true, false}) {
    NamePatience patience(OneMachine(), is_host, kStart);
    EXPECT_EQ(patience.NotFound(kStart), Advice::kAskAgain);
    EXPECT_EQ(patience.NotFound(At(absl::Milliseconds(2999))), Advice::kAskAgain);
    EXPECT_EQ(patience.NotFound(At(absl::Seconds(3))), Advice::kGiveUp);
  }
}

TEST(NamePatienceTest, OfSeveralMachinesRank0WaitsForItsNameToBePublished) {
  NamePatience patience(TwoMachines(), /*is_host=*/true, kStart);
  EXPECT_EQ(patience.NotFound(At(absl::Milliseconds(2999))), Advice::kAskAgain);
  EXPECT_EQ(patience.NotFound(At(absl::Seconds(3))), Advice::kAskAgainAndSaySo);
  EXPECT_EQ(patience.NotFound(At(absl::Milliseconds(29999))), Advice::kAskAgain);
  EXPECT_EQ(patience.NotFound(At(absl::Seconds(30))), Advice::kGiveUp);
}

TEST(NamePatienceTest, OfSeveralMachinesTheOthersWaitForRank0sMachineAndSayThatOnce) {
  NamePatience patience(TwoMachines(), /*is_host=*/false, kStart);
  EXPECT_EQ(patience.NotFound(At(absl::Milliseconds(2999))), Advice::kAskAgain);
  EXPECT_EQ(patience.NotFound(At(absl::Seconds(4))), Advice::kAskAgainAndSaySo);
  EXPECT_EQ(patience.NotFound(At(absl::Seconds(5))), Advice::kAskAgain);
  EXPECT_EQ(patience.NotFound(At(absl::Hours(24))), Advice::kAskAgain);
}

TEST(NamePatienceTest, ANameThatHadAnAddressOnceIsRight) {
  NamePatience patience(OneMachine(), /*is_host=*/false, kStart);
  EXPECT_EQ(patience.NotFound(kStart), Advice::kAskAgain);
  patience.Found();
  EXPECT_EQ(patience.NotFound(At(absl::Hours(1))), Advice::kAskAgain);
}

}  // namespace
}  // namespace cohort::internal
