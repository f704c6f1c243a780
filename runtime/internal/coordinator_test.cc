#include "cohort/runtime/internal/coordinator.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kTimeout = absl::Seconds(10);

// A coordinator, and ranks that do what the test says. Time passes only when the test says so.
class CoordinatorTest : public ::testing::Test {
 protected:
  void Start(int world_size) {
    coordinator_ = std::make_unique<Coordinator>(world_size);
    generations_.resize(world_size);
    for (int rank = 0; rank < world_size; ++rank) coordinator_->Join(rank, 1000 + rank);
  }

  void Arrive(int rank, Arrival arrival) {
    if (arrival.timeout == absl::ZeroDuration()) arrival.timeout = kTimeout;
    EXPECT_THAT(Say(rank, internal::Arrive{.generation = ++generations_[rank], .arrival = std::move(arrival)}), IsOk());
  }
  void Arrive(int rank, std::string operation) { Arrive(rank, Arrival{.operation = std::move(operation)}); }
  absl::Status Say(int rank, ControlMessage message) { return coordinator_->Handle(rank, std::move(message), now_); }

  void Pass(absl::Duration duration) {
    now_ += absl::ToChronoNanoseconds(duration);
    if (now_ >= coordinator_->next_deadline()) coordinator_->Tick(now_);
  }

  // The messages to `rank` since the last call, of kind T.
  template <typename T>
  std::vector<T> Heard(int rank) {
    Sort();
    std::vector<T> messages;
    std::erase_if(inboxes_[rank], [&](const ControlMessage& message) {
      const T* wanted = std::get_if<T>(&message);
      if (wanted != nullptr) messages.push_back(*wanted);
      return wanted != nullptr;
    });
    return messages;
  }
  bool HeardNothing(int rank) {
    Sort();
    return inboxes_[rank].empty();
  }

  // What the rank has been told about its rendezvous.
  Outcome OutcomeOf(int rank) {
    std::vector<Outcome> outcomes = Heard<Outcome>(rank);
    EXPECT_EQ(outcomes.size(), 1u) << "rank " << rank;
    return outcomes.empty() ? Outcome{.status = absl::UnknownError("no outcome")} : outcomes[0];
  }
  // Why the group is of no more use, if the rank has been told.
  absl::Status PoisonOf(int rank) {
    std::vector<Poison> poisons = Heard<Poison>(rank);
    EXPECT_LE(poisons.size(), 1u) << "rank " << rank;
    return poisons.empty() ? absl::OkStatus() : poisons[0].cause;
  }
  // Answers as a live rank does.
  void AnswerInquiry(int rank, std::string operation) {
    std::vector<WhereAreYou> questions = Heard<WhereAreYou>(rank);
    ASSERT_EQ(questions.size(), 1u) << "rank " << rank;
    EXPECT_THAT(Say(rank, Here{.inquiry = questions[0].inquiry, .operation = std::move(operation)}), IsOk());
  }

  std::unique_ptr<Coordinator> coordinator_;
  SteadyTime now_;

 private:
  void Sort() {
    for (const Coordinator::Outgoing& outgoing : coordinator_->TakeOutbox()) {
      for (int rank : outgoing.to) inboxes_[rank].push_back(outgoing.message);
    }
  }

  std::vector<uint64_t> generations_;
  std::map<int, std::vector<ControlMessage>> inboxes_;
};

// ---- Rendezvous ----

TEST_F(CoordinatorTest, NobodyHearsAnythingBeforeAllHaveArrived) {
  Start(3);
  Arrive(2, "step");
  Arrive(0, "step");
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(HeardNothing(rank));
  Arrive(1, "step");
  for (int rank = 0; rank < 3; ++rank) {
    Outcome outcome = OutcomeOf(rank);
    EXPECT_THAT(outcome.status, IsOk());
    EXPECT_EQ(outcome.generation, 1u);
    EXPECT_THAT(outcome.payloads, IsEmpty());
    EXPECT_TRUE(HeardNothing(rank));
  }
}

TEST_F(CoordinatorTest, ARendezvousCostsTwoMessagesARank) {
  Start(5);
  for (int rank = 0; rank < 5; ++rank) Arrive(rank, "step");
  int num_sent = 0;
  for (const Coordinator::Outgoing& outgoing : coordinator_->TakeOutbox()) num_sent += outgoing.to.size();
  EXPECT_EQ(num_sent, 5);
}

TEST_F(CoordinatorTest, PayloadsGoWhereTheDeliverySays) {
  Start(3);
  struct Case {
    Delivery delivery;
    std::vector<std::string> to_main;
    std::vector<std::string> to_others;
  };
  for (const Case& c : {Case{Delivery::kNothing, {}, {}}, Case{Delivery::kMainToAll, {"p0"}, {"p0"}},
                        Case{Delivery::kAllToMain, {"p0", "p1", "p2"}, {}},
                        Case{Delivery::kAllToAll, {"p0", "p1", "p2"}, {"p0", "p1", "p2"}}}) {
    for (int rank : {1, 0, 2}) {
      Arrive(rank, {.operation = "step", .delivery = c.delivery, .payload = absl::StrCat("p", rank)});
    }
    for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(OutcomeOf(rank).payloads, rank == 0 ? c.to_main : c.to_others);
  }
}

TEST_F(CoordinatorTest, AWorldOfOneIsAlwaysComplete) {
  Start(1);
  Arrive(0, {.operation = "step", .delivery = Delivery::kAllToMain, .payload = "p"});
  EXPECT_THAT(OutcomeOf(0).payloads, ElementsAre("p"));
  EXPECT_TRUE(HeardNothing(0));
}

TEST_F(CoordinatorTest, TogetherTheRanksMayBringToAllOnlyWhatOneMessageHolds) {
  Start(2);
  for (int rank : {0, 1}) {
    Arrive(
        rank,
        {.operation = "step", .delivery = Delivery::kAllToAll, .payload = std::string(kMaxPayloadBytes / 2 + 1, 'x')});
  }
  for (int rank : {0, 1}) {
    EXPECT_THAT(OutcomeOf(rank).status,
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("67108866 bytes together")));
  }
}

// ---- A rank arrives with an error ----

TEST_F(CoordinatorTest, EveryRankHearsTheErrorOfTheLowestRank) {
  Start(4);
  Arrive(3, {.operation = "step", .status = absl::DataLossError("three")});
  Arrive(1, {.operation = "step", .status = absl::NotFoundError("one"), .payload = "not to be delivered"});
  Arrive(0, "step");
  Arrive(2, "step");
  for (int rank = 0; rank < 4; ++rank) {
    Outcome outcome = OutcomeOf(rank);
    EXPECT_THAT(outcome.status, StatusIs(absl::StatusCode::kNotFound, "rank 1: one (and 1 other rank)"));
    EXPECT_THAT(outcome.payloads, IsEmpty());
  }
}

TEST_F(CoordinatorTest, TheOtherRanksWithErrorsAreCounted) {
  Start(4);
  for (int rank = 0; rank < 4; ++rank) Arrive(rank, {.operation = "step", .status = absl::DataLossError("oh")});
  EXPECT_THAT(OutcomeOf(2).status, StatusIs(absl::StatusCode::kDataLoss, "rank 0: oh (and 3 other ranks)"));
}

TEST_F(CoordinatorTest, AfterABroughtErrorTheGroupGoesOn) {
  Start(2);
  Arrive(0, {.operation = "first", .status = absl::DataLossError("oh")});
  Arrive(1, "first");
  EXPECT_THAT(OutcomeOf(1).status, StatusIs(absl::StatusCode::kDataLoss, "rank 0: oh"));
  Arrive(1, "second");
  Arrive(0, "second");
  EXPECT_THAT(OutcomeOf(1).status, IsOk());
  EXPECT_THAT(PoisonOf(0), IsOk());
}

// ---- A rank dies ----

TEST_F(CoordinatorTest, ADeathIsToldToEveryRankAtOnceInAnOperationOrNot) {
  Start(3);
  Arrive(0, "step");
  coordinator_->Disconnect(1);
  auto dead = StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 (pid 1001) is gone"));
  EXPECT_THAT(PoisonOf(0), dead);
  EXPECT_THAT(PoisonOf(2), dead);
  EXPECT_TRUE(HeardNothing(1));
}

TEST_F(CoordinatorTest, TheFirstCauseStays) {
  Start(3);
  coordinator_->Disconnect(1);
  coordinator_->Disconnect(2);
  coordinator_->Fail(absl::InternalError("later"));
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 1 ")));
}

TEST_F(CoordinatorTest, ARankThatComesAfterTheFailureHearsOfItAtOnce) {
  coordinator_ = std::make_unique<Coordinator>(2);
  coordinator_->Join(0, 1000);
  coordinator_->Fail(absl::InvalidArgumentError("cause"));
  coordinator_->Join(1, 1001);
  EXPECT_THAT(PoisonOf(1), StatusIs(absl::StatusCode::kInvalidArgument, "cause"));
}

TEST_F(CoordinatorTest, AfterTheFailureNothingIsAnswered) {
  Start(2);
  coordinator_->Disconnect(1);
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kUnavailable));
  Arrive(0, "step");
  EXPECT_THAT(Say(0, Report{.operation = "Barrier", .error = absl::UnavailableError("pipe")}), IsOk());
  Pass(absl::Hours(1));
  EXPECT_TRUE(HeardNothing(0));
  EXPECT_EQ(coordinator_->next_deadline(), SteadyTime::max());
}

// ---- A rank is frozen or absent ----

TEST_F(CoordinatorTest, TheDeadlineNamesTheOperationWhoIsMissingAndTheWait) {
  Start(5);
  Arrive(0, "Agree \"x\"");
  Pass(absl::Seconds(4));
  Arrive(3, "Agree \"x\"");
  Pass(absl::Seconds(6));
  AnswerInquiry(1, "");
  AnswerInquiry(4, "");
  EXPECT_THAT(PoisonOf(0), IsOk()) << "rank 2 has not answered yet";
  Pass(Coordinator::kInquiryGrace);
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(PoisonOf(rank), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                         "Agree \"x\" waited 10s; missing: ranks 1 and 4 (in no operation), "
                                         "rank 2 (does not answer)"));
  }
}

TEST_F(CoordinatorTest, NothingHappensBeforeTheDeadline) {
  Start(2);
  Arrive(0, "step");
  Pass(kTimeout - absl::Nanoseconds(1));
  EXPECT_TRUE(HeardNothing(0));
  EXPECT_TRUE(HeardNothing(1));
  Arrive(1, "step");
  EXPECT_THAT(OutcomeOf(0).status, IsOk());
}

TEST_F(CoordinatorTest, TheVerdictDoesNotWaitOnceAllHaveAnswered) {
  Start(2);
  Arrive(0, "step");
  Pass(kTimeout);
  AnswerInquiry(1, "");
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 1 (in no operation)")));
}

TEST_F(CoordinatorTest, TheEarliestDeadlineOfThoseWhoHaveArrivedCounts) {
  Start(3);
  Arrive(0, {.operation = "step", .timeout = absl::Seconds(10)});
  Arrive(1, {.operation = "step", .timeout = absl::Seconds(3)});
  Pass(absl::Seconds(3));
  AnswerInquiry(2, "");
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("waited 3s")));
}

TEST_F(CoordinatorTest, ARankThatNeverCameIsNotAsked) {
  coordinator_ = std::make_unique<Coordinator>(3);
  coordinator_->Join(0, 1000);
  EXPECT_THAT(Say(0, internal::Arrive{.generation = 1, .arrival = {.operation = "the meeting", .timeout = kTimeout}}),
              IsOk());
  Pass(kTimeout);
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                    "the meeting waited 10s; missing: ranks 1 and 2 (has not come)"));
}

TEST_F(CoordinatorTest, ARankThatArrivesDuringTheInquiryIsTooLateForEverybody) {
  Start(2);
  Arrive(0, "step");
  Pass(kTimeout);
  Arrive(1, "step");
  for (int rank : {0, 1}) {
    EXPECT_THAT(Heard<Outcome>(rank), IsEmpty());
    EXPECT_THAT(PoisonOf(rank), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("every rank is in it by now")));
  }
}

TEST_F(CoordinatorTest, AnAnswerToAnOlderQuestionDoesNotCount) {
  Start(2);
  Arrive(0, "step");
  Pass(kTimeout);
  EXPECT_THAT(Say(1, Here{.inquiry = 77, .operation = ""}), IsOk());
  EXPECT_THAT(PoisonOf(0), IsOk());
}

TEST_F(CoordinatorTest, WhoDiesDuringTheInquiryIsTheCause) {
  Start(3);
  Arrive(0, "step");
  Pass(kTimeout);
  coordinator_->Disconnect(2);
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2 ")));
}

TEST_F(CoordinatorTest, ManyMissingRanksAreNotAllNamed) {
  Start(40);
  Arrive(0, "step");
  Pass(kTimeout);
  Pass(Coordinator::kInquiryGrace);
  EXPECT_THAT(PoisonOf(0),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("15, 16 and 23 more (does not answer)")));
}

// ---- Ranks are in different operations ----

TEST_F(CoordinatorTest, AnotherNameIsSeenAtOnceAndSaysWhoIsWhere) {
  Start(4);
  Arrive(2, "Agree \"a\"");
  Arrive(0, "Agree \"a\"");
  Arrive(1, "Agree \"b\"");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_THAT(PoisonOf(rank), StatusIs(absl::StatusCode::kFailedPrecondition,
                                         "the ranks are in different operations: ranks 0 and 2 in Agree \"a\", "
                                         "rank 1 in Agree \"b\""));
  }
}

TEST_F(CoordinatorTest, AnotherDeliveryIsAnotherOperation) {
  Start(2);
  Arrive(0, {.operation = "step", .delivery = Delivery::kMainToAll});
  Arrive(1, {.operation = "step", .delivery = Delivery::kNothing});
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(CoordinatorTest, ARankInADataOperationIsFoundAtTheDeadline) {
  Start(3);
  Arrive(0, "Agree \"a\"");
  Pass(kTimeout);
  AnswerInquiry(1, "Barrier (data operation 3)");
  AnswerInquiry(2, "");
  EXPECT_THAT(PoisonOf(2), StatusIs(absl::StatusCode::kFailedPrecondition,
                                    "the ranks are in different operations: rank 0 in Agree \"a\", "
                                    "rank 1 in Barrier (data operation 3), rank 2 in no operation"));
}

// ---- A data operation fails ----

constexpr char kBarrier[] = "Barrier (data operation 3)";

TEST_F(CoordinatorTest, ABrokenConnectionWaitsForTheNewsOfADeath) {
  Start(3);
  EXPECT_THAT(Say(0, Report{.operation = kBarrier, .error = absl::UnavailableError("pipe")}), IsOk());
  Pass(Coordinator::kDeathGrace / 2);
  EXPECT_THAT(PoisonOf(0), IsOk());
  coordinator_->Disconnect(2);
  EXPECT_THAT(PoisonOf(0),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("rank 2 "), Not(HasSubstr("pipe")))));
}

TEST_F(CoordinatorTest, AFailureWithoutADeathIsQuotedToAll) {
  Start(3);
  EXPECT_THAT(Say(1, Report{.operation = kBarrier, .error = absl::InvalidArgumentError("shape")}), IsOk());
  EXPECT_THAT(Say(2, Report{.operation = kBarrier, .error = absl::UnavailableError("another")}), IsOk());
  AnswerInquiry(0, "");
  EXPECT_THAT(PoisonOf(0), IsOk());
  Pass(Coordinator::kDeathGrace);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(PoisonOf(rank),
                StatusIs(absl::StatusCode::kInvalidArgument, absl::StrCat("rank 1: ", kBarrier, ": shape")));
  }
}

TEST_F(CoordinatorTest, AnAbortIsTheCauseAtOnceWhateverTheRanksAreIn) {
  Start(3);
  Arrive(0, "Agree \"x\"");
  EXPECT_THAT(Say(1, Abort{.why = absl::DataLossError("no batch")}), IsOk());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(PoisonOf(rank), StatusIs(absl::StatusCode::kDataLoss, "rank 1: no batch"));
  }
}

TEST_F(CoordinatorTest, AnAbortWithoutAnErrorIsRefused) {
  Start(2);
  EXPECT_THAT(Say(1, Abort{}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(PoisonOf(0), IsOk());
}

TEST_F(CoordinatorTest, ADataOperationOutOfTimeNamesWhoIsMissing) {
  Start(4);
  Report report{.operation = kBarrier, .error = absl::DeadlineExceededError("gloo"), .waited = absl::Seconds(7)};
  EXPECT_THAT(Say(1, report), IsOk());
  EXPECT_THAT(Say(0, report), IsOk());
  AnswerInquiry(3, "");
  Pass(Coordinator::kInquiryGrace);
  EXPECT_THAT(
      PoisonOf(0),
      StatusIs(absl::StatusCode::kDeadlineExceeded,
               absl::StrCat(kBarrier, " waited 7s; missing: rank 2 (does not answer), rank 3 (in no operation)")));
}

TEST_F(CoordinatorTest, ADataOperationOutOfTimeFindsWhoIsElsewhere) {
  Start(2);
  Arrive(0, "Agree \"a\"");
  EXPECT_THAT(
      Say(1, Report{.operation = kBarrier, .error = absl::DeadlineExceededError(""), .waited = absl::Seconds(1)}),
      IsOk());
  EXPECT_THAT(PoisonOf(1),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 0 in Agree \"a\""), HasSubstr(absl::StrCat("rank 1 in ", kBarrier)))));
}

TEST_F(CoordinatorTest, ADataOperationOutOfTimeInWhichEverybodyIsMissesNobody) {
  Start(2);
  Report report{.operation = kBarrier, .error = absl::DeadlineExceededError(""), .waited = absl::Seconds(1)};
  EXPECT_THAT(Say(0, report), IsOk());
  EXPECT_THAT(Say(1, report), IsOk());
  EXPECT_THAT(PoisonOf(1), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("every rank is in it by now")));
}

// ---- Leaving ----

TEST_F(CoordinatorTest, RankZeroIsTheLastToBeTold) {
  Start(3);
  EXPECT_THAT(Say(0, Goodbye{.timeout = kTimeout}), IsOk());
  EXPECT_TRUE(HeardNothing(0));
  EXPECT_THAT(Say(2, Goodbye{.timeout = kTimeout}), IsOk());
  EXPECT_EQ(Heard<Farewell>(2).size(), 1u);
  EXPECT_TRUE(HeardNothing(0));
  EXPECT_THAT(Say(1, Goodbye{.timeout = kTimeout}), IsOk());
  EXPECT_EQ(Heard<Farewell>(1).size(), 1u);
  std::vector<Farewell> farewells = Heard<Farewell>(0);
  ASSERT_EQ(farewells.size(), 1u);
  EXPECT_THAT(farewells[0].status, IsOk());
}

TEST_F(CoordinatorTest, LeavingInAnyOrderIsQuiet) {
  Start(3);
  for (int rank : {1, 0, 2}) EXPECT_THAT(Say(rank, Goodbye{.timeout = kTimeout}), IsOk());
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(Heard<Farewell>(rank).size(), 1u);
    coordinator_->Disconnect(rank);
    EXPECT_TRUE(HeardNothing(rank));
  }
}

TEST_F(CoordinatorTest, RankZeroDoesNotWaitForTheDead) {
  Start(3);
  EXPECT_THAT(Say(1, Goodbye{}), IsOk());
  EXPECT_THAT(Say(0, Goodbye{.timeout = kTimeout}), IsOk());
  coordinator_->Disconnect(2);
  std::vector<Farewell> farewells = Heard<Farewell>(0);
  ASSERT_EQ(farewells.size(), 1u);
  EXPECT_THAT(farewells[0].status, IsOk());
}

TEST_F(CoordinatorTest, RankZeroWaitsNoLongerThanItsTimeoutAndNamesTheRest) {
  Start(3);
  EXPECT_THAT(Say(1, Goodbye{}), IsOk());
  EXPECT_THAT(Say(0, Goodbye{.timeout = kTimeout}), IsOk());
  Pass(kTimeout);
  std::vector<Farewell> farewells = Heard<Farewell>(0);
  ASSERT_EQ(farewells.size(), 1u);
  EXPECT_THAT(farewells[0].status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 2")));
}

TEST_F(CoordinatorTest, InAFailedGroupNobodyWaitsToLeave) {
  Start(3);
  coordinator_->Disconnect(1);
  EXPECT_THAT(Say(0, Goodbye{.timeout = kTimeout}), IsOk());
  EXPECT_EQ(Heard<Farewell>(0).size(), 1u);
}

TEST_F(CoordinatorTest, WhoStillNeedsARankThatHasLeftHearsSo) {
  Start(3);
  EXPECT_THAT(Say(1, Goodbye{}), IsOk());
  EXPECT_THAT(PoisonOf(0), IsOk()) << "nobody needs it yet";
  Arrive(0, "Agree \"a\"");
  auto left =
      StatusIs(absl::StatusCode::kFailedPrecondition, "rank 1 has left the group, and Agree \"a\" needs every rank");
  EXPECT_THAT(PoisonOf(0), left);
  EXPECT_THAT(PoisonOf(2), left);
  EXPECT_TRUE(Heard<Poison>(1).empty());
}

TEST_F(CoordinatorTest, WhoIsWaitingForARankThatLeavesHearsSo) {
  Start(2);
  Arrive(0, "Agree \"a\"");
  EXPECT_THAT(Say(1, Goodbye{}), IsOk());
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 1 has left")));
}

TEST_F(CoordinatorTest, ADataOperationWithARankThatHasLeftIsExplainedByThat) {
  Start(2);
  EXPECT_THAT(Say(1, Goodbye{}), IsOk());
  EXPECT_THAT(Say(0, Report{.operation = kBarrier, .error = absl::UnavailableError("pipe")}), IsOk());
  EXPECT_THAT(PoisonOf(0), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("rank 1 has left")));
}

TEST_F(CoordinatorTest, AnAnswerMayCrossTheRanksOwnGoodbye) {
  Start(2);
  EXPECT_THAT(Say(1, Goodbye{}), IsOk());
  EXPECT_THAT(Say(1, Here{.inquiry = 1}), IsOk());
}

// ---- Nonsense ----

TEST_F(CoordinatorTest, WhatNoRankWouldSayIsRefused) {
  Start(2);
  auto refused = StatusIs(absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Say(1, Outcome{}), refused);
  EXPECT_THAT(Say(1, Poison{absl::InternalError("")}), refused);
  EXPECT_THAT(Say(1, Hello{}), refused);
  EXPECT_THAT(Say(1, internal::Arrive{.generation = 2}), refused);
  Arrive(1, "step");
  EXPECT_THAT(Say(1, internal::Arrive{.generation = 2}), refused) << "it has not heard the first outcome";
}

}  // namespace
}  // namespace cohort::internal
