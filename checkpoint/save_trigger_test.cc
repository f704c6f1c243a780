#include "cohort/checkpoint/save_trigger.h"

#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::cohort::testing::RunRanks;
using ::cohort::testing::ThreadGroup;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SaveDecision kGoOn = SaveDecision::kGoOn;
constexpr SaveDecision kSave = SaveDecision::kSave;
constexpr SaveDecision kSaveAndStop = SaveDecision::kSaveAndStop;

// The steps from `first` to `last` after which a save is due, and no stop.
std::vector<int64_t> StepsDue(SaveTrigger& trigger, int64_t first, int64_t last) {
  std::vector<int64_t> due;
  for (int64_t step = first; step <= last; ++step) {
    const absl::StatusOr<SaveDecision> decision = trigger.Decide(step);
    EXPECT_THAT(decision, AnyOf(IsOkAndHolds(kGoOn), IsOkAndHolds(kSave)));
    if (decision.ok() && *decision == kSave) due.push_back(step);
  }
  return due;
}

// A trigger of a world of one.
class SaveTriggerTest : public ::testing::Test {
 protected:
  std::unique_ptr<SaveTrigger> Make(SaveTriggerOptions options) {
    absl::StatusOr<std::unique_ptr<SaveTrigger>> trigger = SaveTrigger::Create(group_.get(), std::move(options));
    EXPECT_THAT(trigger, IsOk());
    return *std::move(trigger);
  }

  const std::unique_ptr<ProcessGroup> group_ = ProcessGroup::WorldOfOne();
  absl::Duration now_ = absl::Hours(1000);
};

TEST_F(SaveTriggerTest, WithNothingToGoByNoSaveIsEverDue) { EXPECT_THAT(StepsDue(*Make({}), 0, 1000), ElementsAre()); }

TEST_F(SaveTriggerTest, EverySoManyStepsMeansTheStepsThatTheNumberDivides) {
  EXPECT_THAT(StepsDue(*Make({.every_steps = 3}), -6, 10), ElementsAre(3, 6, 9));
  EXPECT_THAT(StepsDue(*Make({.every_steps = 1}), 0, 3), ElementsAre(1, 2, 3));
  // A run that goes on keeps the rhythm of the one before.
  EXPECT_THAT(StepsDue(*Make({.every_steps = 5}), 8, 16), ElementsAre(10, 15));
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(Make({.every_steps = kMost})->Decide(kMost), IsOkAndHolds(kSave));
}

TEST_F(SaveTriggerTest, EverySoLongATimeBeginsWithTheTriggerAndThenAfterEachSave) {
  const auto trigger = Make({.every = absl::Minutes(30), .clock = [&] { return now_; }});
  now_ += absl::Minutes(30) - absl::Nanoseconds(1);
  EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kGoOn));
  now_ += absl::Nanoseconds(1);
  EXPECT_THAT(trigger->Decide(2), IsOkAndHolds(kSave));
  now_ += absl::Hours(5);  // that is how long the save took
  EXPECT_THAT(trigger->Decide(3), IsOkAndHolds(kGoOn));
  now_ += absl::Minutes(29);
  EXPECT_THAT(trigger->Decide(4), IsOkAndHolds(kGoOn));
  now_ += absl::Minutes(1);
  EXPECT_THAT(trigger->Decide(5), IsOkAndHolds(kSave));
}

TEST_F(SaveTriggerTest, ASaveForOneReasonIsOneForTheOthersAsWell) {
  const auto trigger =
      Make({.every_steps = 10, .every = absl::Minutes(1), .signals = {SIGUSR1}, .clock = [&] { return now_; }});
  EXPECT_THAT(trigger->Decide(9), IsOkAndHolds(kGoOn));
  now_ += absl::Minutes(2);
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  EXPECT_THAT(trigger->Decide(10), IsOkAndHolds(kSave));
  EXPECT_THAT(trigger->Decide(11), IsOkAndHolds(kGoOn));
}

TEST_F(SaveTriggerTest, TheMachinesClockRuns) {
  const auto trigger = Make({.every = absl::Nanoseconds(1)});
  EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kSave));
  EXPECT_THAT(Make({.every = absl::InfiniteDuration()})->Decide(1), IsOkAndHolds(kGoOn));
}

TEST_F(SaveTriggerTest, ASignalIsOneSaveHoweverOftenItCame) {
  const auto trigger = Make({.signals = {SIGUSR1, SIGUSR2}});
  EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kGoOn));
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  EXPECT_THAT(trigger->Decide(2), IsOkAndHolds(kSave));
  EXPECT_THAT(trigger->Decide(3), IsOkAndHolds(kGoOn));
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  EXPECT_THAT(trigger->Decide(4), IsOkAndHolds(kSave));
}

TEST_F(SaveTriggerTest, ASignalThatCameToAnEarlierTriggerIsNotForALaterOne) {
  const auto first = Make({.signals = {SIGUSR1}});
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  const auto second = Make({.signals = {SIGUSR1}});
  EXPECT_THAT(second->Decide(1), IsOkAndHolds(kGoOn));
  EXPECT_THAT(first->Decide(1), IsOkAndHolds(kSave));
}

TEST_F(SaveTriggerTest, AStopSignalIsOneSaveAndAStopForGood) {
  const auto trigger = Make({.every_steps = 2, .signals = {SIGUSR2}, .stop_signals = {SIGTERM, SIGUSR1}});
  EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kGoOn));
  EXPECT_THAT(trigger->Decide(2), IsOkAndHolds(kSave));
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  EXPECT_THAT(trigger->Decide(3), IsOkAndHolds(kSave));
  ASSERT_EQ(std::raise(SIGUSR1), 0);
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  ASSERT_EQ(std::raise(SIGTERM), 0);
  EXPECT_THAT(trigger->Decide(4), IsOkAndHolds(kSaveAndStop));
  ASSERT_EQ(std::raise(SIGTERM), 0);
  EXPECT_THAT(trigger->Decide(5), IsOkAndHolds(kSaveAndStop));
}

TEST_F(SaveTriggerTest, AStopSignalDoesNotEndTheProcessOnceAStopIsDecided) {
  {
    const auto trigger = Make({.stop_signals = {SIGHUP}});
    ASSERT_EQ(std::raise(SIGHUP), 0);
    EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kSaveAndStop));
  }
  ASSERT_EQ(std::raise(SIGHUP), 0);
}

TEST_F(SaveTriggerTest, AStopSignalThatNobodyWasToldOfIsPutBack) {
  Make({.signals = {SIGVTALRM}, .stop_signals = {SIGALRM}});
  for (const int signal : {SIGVTALRM, SIGALRM}) {
    EXPECT_EXIT(std::raise(signal), ::testing::KilledBySignal(signal), "");
  }
}

TEST_F(SaveTriggerTest, SignalsAndTheClockAreAnsweredAfterTheStepsThatCheckEveryDivides) {
  const auto trigger = Make({.every_steps = 7,
                             .every = absl::Hours(1),
                             .signals = {SIGUSR2},
                             .stop_signals = {SIGTERM},
                             .check_every = 5,
                             .clock = [&] { return now_; }});
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  EXPECT_THAT(StepsDue(*trigger, 1, 6), ElementsAre(5));
  EXPECT_THAT(trigger->Decide(7), IsOkAndHolds(kSave));
  EXPECT_THAT(trigger->Decide(8), IsOkAndHolds(kGoOn));
  now_ += absl::Hours(1);
  EXPECT_THAT(StepsDue(*trigger, 9, 13), ElementsAre(10));
  ASSERT_EQ(std::raise(SIGTERM), 0);
  // The steps are saved all the same, and what asked for less has been answered.
  EXPECT_THAT(trigger->Decide(14), IsOkAndHolds(kSave));
  EXPECT_THAT(trigger->Decide(15), IsOkAndHolds(kSaveAndStop));
}

TEST_F(SaveTriggerTest, WhatAskedBeforeASaveForTheStepsIsDoneByItBetweenTheChecksToo) {
  const auto trigger = Make({.every_steps = 3, .signals = {SIGUSR2}, .check_every = 4});
  ASSERT_EQ(std::raise(SIGUSR2), 0);
  EXPECT_THAT(StepsDue(*trigger, 1, 8), ElementsAre(3, 6));
}

TEST_F(SaveTriggerTest, ImpossibleOptionsAreNamedWithTheirValue) {
  const auto refused = [&](SaveTriggerOptions options, const std::string& message) {
    EXPECT_THAT(SaveTrigger::Create(group_.get(), std::move(options)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
  };
  refused({.every_steps = 0}, "every_steps=0: must be at least 1");
  refused({.every_steps = std::numeric_limits<int64_t>::min()}, "every_steps=-9223372036854775808: must be at least 1");
  refused({.check_every = 0}, "check_every=0: must be at least 1");
  refused({.check_every = -3}, "check_every=-3: must be at least 1");
  refused({.every = absl::ZeroDuration()}, "every=0: must be more than 0");
  refused({.every = -absl::Seconds(5)}, "every=-5s: must be more than 0");
  refused({.signals = {SIGUSR1, SIGKILL}}, "signals=9: SIGKILL and SIGSTOP cannot be caught; SIGUSR1 (10)");
  refused({.signals = {SIGSEGV}}, "signals=11: a program cannot go on after SIGSEGV");
  refused({.signals = {0}}, "signals=0: is no signal");
  refused({.signals = {-1}}, "signals=-1: is no signal");
  refused({.stop_signals = {SIGTERM, SIGSTOP}}, "stop_signals=19: SIGKILL and SIGSTOP cannot be caught");
  refused({.signals = {SIGUSR2, SIGUSR1}, .stop_signals = {SIGTERM, SIGUSR1}},
          "signals=10: is in stop_signals too; a signal is for one of them");
  refused({.signals = {NSIG}}, absl::StrCat("signals=", NSIG, ": is no signal"));
}

// ---- Several ranks ----

TEST(SaveTriggerRanksTest, StepsAloneNeedNoOtherRank) {
  // Rank 0 asks, rank 1 never does, and both still meet: nothing was sent.
  EXPECT_THAT(RunRanks(2,
                       [](ProcessGroup& group) {
                         if (group.is_main()) {
                           const auto trigger = *SaveTrigger::Create(&group, {.every_steps = 2});
                           EXPECT_THAT(StepsDue(*trigger, 1, 5), ElementsAre(2, 4));
                         }
                         return group.Agree("afterwards", absl::OkStatus());
                       }),
              Each(IsOk()));
}

TEST(SaveTriggerRanksTest, AStepThatIsDueNeedsNoOtherRankEither) {
  EXPECT_THAT(RunRanks(2,
                       [](ProcessGroup& group) {
                         if (group.is_main()) {
                           const auto trigger =
                               *SaveTrigger::Create(&group, {.every_steps = 1, .every = absl::InfiniteDuration()});
                           EXPECT_THAT(StepsDue(*trigger, 1, 3), ElementsAre(1, 2, 3));
                         }
                         return group.Agree("afterwards", absl::OkStatus());
                       }),
              Each(IsOk()));
}

TEST(SaveTriggerRanksTest, TheMainRanksClockDecidesForAll) {
  EXPECT_THAT(RunRanks(3,
                       [](ProcessGroup& group) {
                         // The others' clocks run away.
                         absl::Duration now;
                         const absl::Duration tick = group.is_main() ? absl::Seconds(1) : absl::Hours(1);
                         const auto trigger = *SaveTrigger::Create(
                             &group, {.every = absl::Seconds(3), .clock = [&] { return now += tick; }});
                         EXPECT_THAT(StepsDue(*trigger, 1, 9), ElementsAre(3, 7));
                         return absl::OkStatus();
                       }),
              Each(IsOk()));
}

TEST(SaveTriggerRanksTest, ASignalToOneRankIsASaveOnAll) {
  for (const int asked : {0, 1, 2}) {
    EXPECT_THAT(RunRanks(3,
                         [&](ProcessGroup& group) {
                           // The ranks are threads of one process: only the one that is asked watches the signal.
                           const auto trigger =
                               *SaveTrigger::Create(&group, {.signals = {group.rank() == asked ? SIGUSR1 : SIGUSR2}});
                           EXPECT_THAT(StepsDue(*trigger, 1, 3), ElementsAre());
                           if (group.rank() == asked) std::raise(SIGUSR1);
                           EXPECT_THAT(StepsDue(*trigger, 4, 9), ElementsAre(4));
                           // As a failed save leaves it: the group goes on.
                           return group.Agree("afterwards", absl::OkStatus());
                         }),
                Each(IsOk()))
        << asked;
  }
}

TEST(SaveTriggerRanksTest, AStopSignalToOneRankStopsAllAfterOneStep) {
  for (const int asked : {0, 1, 2}) {
    EXPECT_THAT(RunRanks(3,
                         [&](ProcessGroup& group) {
                           // Only the rank that is asked watches the signal that is raised.
                           const int signal = group.rank() == asked ? SIGUSR1 : SIGWINCH;
                           const auto trigger =
                               *SaveTrigger::Create(&group, {.stop_signals = {signal}, .check_every = 10});
                           EXPECT_THAT(StepsDue(*trigger, 1, 12), ElementsAre());
                           if (group.rank() == asked) std::raise(SIGUSR1);
                           EXPECT_THAT(StepsDue(*trigger, 13, 19), ElementsAre());
                           EXPECT_THAT(trigger->Decide(20), IsOkAndHolds(kSaveAndStop));
                           return group.Agree("afterwards", absl::OkStatus());
                         }),
                Each(IsOk()))
        << asked;
  }
}

// Agree tells the lowest rank's wish alone.
TEST(SaveTriggerRanksTest, AStopIsNotHiddenByTheSaveThatALowerRankWants) {
  for (const int stopped : {0, 1, 2}) {
    EXPECT_THAT(RunRanks(3,
                         [&](ProcessGroup& group) -> absl::Status {
                           const bool is_stopped = group.rank() == stopped;
                           const auto trigger =
                               *SaveTrigger::Create(&group, {.signals = {is_stopped ? SIGWINCH : SIGUSR1},
                                                             .stop_signals = {is_stopped ? SIGUSR2 : SIGURG}});
                           std::raise(is_stopped ? SIGUSR2 : SIGUSR1);
                           EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kSaveAndStop));
                           return group.Agree("afterwards", absl::OkStatus());
                         }),
                Each(IsOk()))
        << stopped;
  }
}

TEST(SaveTriggerRanksTest, AStopIsHeardAfterAStepThatIsSavedAnyway) {
  EXPECT_THAT(RunRanks(2,
                       [](ProcessGroup& group) {
                         const int signal = group.rank() == 1 ? SIGUSR1 : SIGWINCH;
                         const auto trigger =
                             *SaveTrigger::Create(&group, {.every_steps = 2, .stop_signals = {signal}});
                         EXPECT_THAT(StepsDue(*trigger, 1, 3), ElementsAre(2));
                         if (group.rank() == 1) std::raise(SIGUSR1);
                         EXPECT_THAT(trigger->Decide(4), IsOkAndHolds(kSaveAndStop));
                         return absl::OkStatus();
                       }),
              Each(IsOk()));
}

TEST(SaveTriggerRanksTest, BetweenTheChecksNoOtherRankIsNeeded) {
  EXPECT_THAT(RunRanks(2,
                       [](ProcessGroup& group) {
                         if (group.is_main()) {
                           const auto trigger = *SaveTrigger::Create(
                               &group, {.every_steps = 4, .stop_signals = {SIGTERM}, .check_every = 10});
                           EXPECT_THAT(StepsDue(*trigger, 1, 9), ElementsAre(4, 8));
                         }
                         return group.Agree("afterwards", absl::OkStatus());
                       }),
              Each(IsOk()));
}

TEST(SaveTriggerRanksTest, ASignalToAllRanksIsOneSave) {
  EXPECT_THAT(RunRanks(3,
                       [](ProcessGroup& group) -> absl::Status {
                         const auto trigger = *SaveTrigger::Create(&group, {.signals = {SIGUSR1}});
                         ABSL_RETURN_IF_ERROR(group.Agree("all watch", absl::OkStatus()));
                         std::raise(SIGUSR1);
                         ABSL_RETURN_IF_ERROR(group.Agree("all have raised", absl::OkStatus()));
                         EXPECT_THAT(StepsDue(*trigger, 1, 5), ElementsAre(1));
                         return absl::OkStatus();
                       }),
              Each(IsOk()));
}

TEST(SaveTriggerRanksTest, ARankThatDiedIsAnErrorAndNoWish) {
  ThreadGroup threads({.world_size = 3, .group = {.timeout = absl::Seconds(60)}});
  threads.KillAfter(/*rank=*/2, /*num_collectives=*/1);
  EXPECT_THAT(threads.Run([](ProcessGroup& group) {
    const auto trigger = *SaveTrigger::Create(&group, {.signals = {SIGUSR2}});
    EXPECT_THAT(trigger->Decide(1), IsOkAndHolds(kGoOn));
    return trigger->Decide(2).status();
  }),
              ElementsAre(StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2 ")),
                          StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2 ")),
                          StatusIs(absl::StatusCode::kCancelled)));
}

TEST(SaveTriggerRanksTest, AnErrorOfAnotherOperationIsNoWish) {
  EXPECT_THAT(RunRanks(2,
                       [](ProcessGroup& group) {
                         const auto trigger = *SaveTrigger::Create(&group, {.signals = {SIGUSR2}});
                         return group.is_main() ? trigger->Decide(1).status()
                                                : group.Agree("else", absl::AbortedError("x"));
                       }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition)));
}

TEST(SaveTriggerRanksTest, RanksThatAskAfterDifferentStepsAreTold) {
  EXPECT_THAT(RunRanks(2,
                       [](ProcessGroup& group) {
                         const auto trigger = *SaveTrigger::Create(&group, {.every = absl::Nanoseconds(1)});
                         return trigger->Decide(7 + group.rank()).status();
                       }),
              Each(StatusIs(absl::StatusCode::kFailedPrecondition,
                            AllOf(HasSubstr("save after step 7"), HasSubstr("save after step 8")))));
}

}  // namespace
}  // namespace cohort
