#include "cohort/runtime/internal/control_plane.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>  // NOLINT
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kLong = absl::Seconds(60);

// A coordinator that says what the test says. It answers while the rank sends, before the rank even waits: nothing in
// the protocol forbids that.
class FakeLink final : public ControlLink {
 public:
  using Answer = std::function<void(Listener& rank, const ControlMessage& message)>;

  explicit FakeLink(Answer answer) : answer_(std::move(answer)) {}

  void Start(Listener* absl_nonnull listener) override { listener_ = listener; }
  void Send(ControlMessage message) override { answer_(*listener_, message); }

 private:
  Answer answer_;
  Listener* listener_ = nullptr;
};

// Answers an arrival with `outcome`, a goodbye with a farewell, and nothing else.
FakeLink::Answer Answering(Outcome outcome) {
  return [outcome](ControlLink::Listener& rank, const ControlMessage& message) {
    if (const Arrive* arrive = std::get_if<Arrive>(&message)) {
      Outcome answer = outcome;
      answer.generation = arrive->generation;
      rank.OnMessage(std::move(answer));
    }
    if (std::holds_alternative<Goodbye>(message)) rank.OnMessage(Farewell{});
  };
}

void Silent(ControlLink::Listener&, const ControlMessage&) {}

// A rank with a link that the test can make speak.
class Rank {
 public:
  explicit Rank(FakeLink::Answer answer) : control_plane_(MakeLink(std::move(answer))) {}

  ControlPlane* operator->() { return &control_plane_; }
  // As if it came from the coordinator, at any time.
  ControlLink::Listener& listener() { return *listener_; }
  std::vector<ControlMessage> sent() {
    absl::MutexLock lock(mutex_);
    return sent_;
  }

 private:
  // Passes on to the fake, and notes.
  class NotingLink final : public ControlLink {
   public:
    NotingLink(Rank* absl_nonnull rank, FakeLink::Answer answer) : rank_(*rank), fake_(std::move(answer)) {}
    void Start(Listener* absl_nonnull listener) override {
      rank_.listener_ = listener;
      fake_.Start(listener);
    }
    void Send(ControlMessage message) override {
      {
        absl::MutexLock lock(rank_.mutex_);
        rank_.sent_.push_back(message);
      }
      fake_.Send(std::move(message));
    }

   private:
    Rank& rank_;
    FakeLink fake_;
  };

  std::unique_ptr<ControlLink> MakeLink(FakeLink::Answer answer) {
    return std::make_unique<NotingLink>(this, std::move(answer));
  }

  absl::Mutex mutex_;
  std::vector<ControlMessage> sent_;
  ControlLink::Listener* listener_ = nullptr;
  ControlPlane control_plane_;
};

TEST(ControlPlaneTest, MeetReturnsWhatTheCoordinatorSays) {
  Rank rank(Answering({.payloads = {"a", "b"}}));
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), IsOkAndHolds(ElementsAre("a", "b")));
  Rank failing(Answering({.status = absl::DataLossError("rank 1: oh")}));
  EXPECT_THAT(failing->Meet({.operation = "step", .timeout = kLong}),
              StatusIs(absl::StatusCode::kDataLoss, "rank 1: oh"));
  EXPECT_THAT(failing->first_error(), IsOk());
}

TEST(ControlPlaneTest, GenerationsCountFromOne) {
  Rank rank(Answering({}));
  for (int i = 0; i < 2; ++i) EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), IsOk());
  ASSERT_EQ(rank.sent().size(), 2u);
  EXPECT_EQ(std::get<Arrive>(rank.sent()[0]).generation, 1u);
  EXPECT_EQ(std::get<Arrive>(rank.sent()[1]).generation, 2u);
}

TEST(ControlPlaneTest, AnOutcomeOfAnotherRendezvousIsIgnored) {
  Rank rank([](ControlLink::Listener& listener, const ControlMessage& message) {
    if (!std::holds_alternative<Arrive>(message)) return;
    listener.OnMessage(Outcome{.generation = 7, .payloads = {"wrong"}});
    listener.OnMessage(Outcome{.generation = 1, .payloads = {"right"}});
    listener.OnMessage(Outcome{.generation = 0, .payloads = {"wrong"}});
  });
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), IsOkAndHolds(ElementsAre("right")));
}

TEST(ControlPlaneTest, TheFirstCallReturnsTheCauseAndLaterOnesQuoteIt) {
  Rank rank(&Silent);
  rank.listener().OnMessage(Poison{absl::UnavailableError("rank 2 is gone")});
  EXPECT_THAT(rank->first_error(), StatusIs(absl::StatusCode::kUnavailable, "rank 2 is gone"));
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}),
              StatusIs(absl::StatusCode::kUnavailable, "rank 2 is gone"));
  auto quoted = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("UNAVAILABLE: rank 2 is gone"));
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), quoted);
  EXPECT_THAT(rank->EnterData("Barrier"), quoted);
  EXPECT_THAT(rank->first_error(), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(rank.sent(), IsEmpty()) << "nobody is bothered with operations that cannot be";
}

TEST(ControlPlaneTest, TheFirstCauseCounts) {
  Rank rank(&Silent);
  rank.listener().OnMessage(Poison{absl::UnavailableError("first")});
  rank.listener().OnMessage(Poison{absl::InternalError("second")});
  rank.listener().OnLost(absl::UnavailableError("third"));
  EXPECT_THAT(rank->first_error(), StatusIs(absl::StatusCode::kUnavailable, "first"));
}

TEST(ControlPlaneTest, ALostCoordinatorPoisons) {
  Rank rank(&Silent);
  rank.listener().OnLost(absl::UnavailableError("rank 0 is gone"));
  EXPECT_THAT(rank->EnterData("Barrier"), StatusIs(absl::StatusCode::kUnavailable, "rank 0 is gone"));
}

TEST(ControlPlaneTest, PoisonWakesWhoIsWaiting) {
  absl::Notification arrived;
  Rank rank([&](ControlLink::Listener&, const ControlMessage& message) {
    if (std::holds_alternative<Arrive>(message)) arrived.Notify();
  });
  std::thread coordinator([&] {
    arrived.WaitForNotification();
    rank.listener().OnMessage(Poison{absl::UnavailableError("rank 2 is gone")});
  });
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), StatusIs(absl::StatusCode::kUnavailable));
  coordinator.join();
}

TEST(ControlPlaneTest, ASecondThreadIsTurnedAway) {
  absl::Notification arrived;
  Rank rank([&](ControlLink::Listener&, const ControlMessage& message) {
    if (std::holds_alternative<Arrive>(message)) arrived.Notify();
  });
  std::thread first([&] { EXPECT_THAT(rank->Meet({.operation = "first", .timeout = kLong}), IsOk()); });
  arrived.WaitForNotification();
  auto turned_away = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another thread is in first"));
  EXPECT_THAT(rank->Meet({.operation = "second", .timeout = kLong}), turned_away);
  EXPECT_THAT(rank->EnterData("Barrier"), turned_away);
  rank.listener().OnMessage(Outcome{.generation = 1});
  first.join();
  EXPECT_THAT(rank->EnterData("Barrier"), IsOk());
}

TEST(ControlPlaneTest, ACoordinatorThatDoesNotAnswerIsNamedAndTheGroupFails) {
  Rank rank(&Silent);
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = absl::Milliseconds(50)}),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "step waited 50ms; missing: rank 0 (does not answer)"));
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ControlPlaneTest, WhereItIsDependsOnWhatItDoes) {
  std::vector<std::string> places;
  Rank rank([&](ControlLink::Listener& listener, const ControlMessage& message) {
    if (const Here* here = std::get_if<Here>(&message)) {
      EXPECT_EQ(here->inquiry, 5u);
      places.push_back(here->operation);
    }
    if (const Arrive* arrive = std::get_if<Arrive>(&message)) {
      listener.OnMessage(WhereAreYou{.inquiry = 5});
      listener.OnMessage(Outcome{.generation = arrive->generation});
    }
  });
  auto ask = [&] { rank.listener().OnMessage(WhereAreYou{.inquiry = 5}); };
  ask();
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), IsOk());
  ask();
  EXPECT_THAT(rank->EnterData("Barrier"), IsOk());
  ask();
  rank->ExitData();
  ask();
  EXPECT_THAT(rank->EnterData("Barrier"), IsOk());
  ask();
  rank->ExitData();
  EXPECT_THAT(places, ElementsAre("", "step", "", "Barrier (data operation 1)", "", "Barrier (data operation 2)"));
}

TEST(ControlPlaneTest, AnOutcomeEndsTheOperationBeforeTheCallerWakesUp) {
  std::vector<std::string> places;
  Rank rank([&](ControlLink::Listener& listener, const ControlMessage& message) {
    if (const Here* here = std::get_if<Here>(&message)) places.push_back(here->operation);
    if (const Arrive* arrive = std::get_if<Arrive>(&message)) {
      listener.OnMessage(Outcome{.generation = arrive->generation});
      listener.OnMessage(WhereAreYou{.inquiry = 5});
    }
  });
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), IsOk());
  EXPECT_THAT(places, ElementsAre(""));
}

TEST(ControlPlaneTest, ExplainReportsAndReturnsTheCauseThatAllHear) {
  Rank rank([](ControlLink::Listener& listener, const ControlMessage& message) {
    if (const Report* report = std::get_if<Report>(&message)) {
      EXPECT_EQ(report->operation, "Barrier (data operation 1)");
      EXPECT_EQ(report->waited, absl::Seconds(3));
      EXPECT_THAT(report->error, StatusIs(absl::StatusCode::kUnavailable, "pipe"));
      listener.OnMessage(Poison{absl::UnavailableError("rank 2 is gone")});
    }
  });
  ASSERT_THAT(rank->EnterData("Barrier"), IsOk());
  EXPECT_THAT(rank->Explain("Barrier", absl::UnavailableError("pipe"), absl::Seconds(3)),
              StatusIs(absl::StatusCode::kUnavailable, "rank 2 is gone"));
  rank->ExitData();
  EXPECT_THAT(rank->EnterData("Barrier"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(ControlPlaneTest, WithoutACoordinatorExplainSaysWhatIsKnown) {
  Rank broken(&Silent);
  EXPECT_THAT(
      broken->Explain("Barrier", absl::UnavailableError("pipe"), absl::Seconds(3)),
      StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("Barrier: pipe"), HasSubstr("rank 0 does not answer"))));
  Rank late(&Silent);
  EXPECT_THAT(late->Explain("Barrier", absl::DeadlineExceededError("gloo"), absl::Seconds(3)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, "Barrier waited 3s; missing: rank 0 (does not answer)"));
}

TEST(ControlPlaneTest, ThePoisonHandlerIsCalledOnce) {
  std::vector<absl::Status> causes;
  Rank rank(&Silent);
  rank->SetPoisonHandler([&](const absl::Status& cause) { causes.push_back(cause); });
  EXPECT_THAT(causes, IsEmpty());
  rank.listener().OnMessage(Poison{absl::UnavailableError("first")});
  rank.listener().OnMessage(Poison{absl::UnavailableError("second")});
  EXPECT_THAT(causes, ElementsAre(StatusIs(absl::StatusCode::kUnavailable, "first")));
}

// The process may end as soon as it has the error, by _exit() even, and what the handler writes would be lost.
TEST(ControlPlaneTest, NoCallReturnsThePoisonBeforeTheHandlerHasRun) {
  Rank rank(&Silent);
  absl::Notification begun;
  absl::Notification returned;
  std::atomic<bool> handled = false;
  rank->SetPoisonHandler([&](const absl::Status&) {
    begun.Notify();
    // Long enough for a call that does not wait for this to return. If it does wait, this is in vain.
    returned.WaitForNotificationWithTimeout(absl::Milliseconds(100));
    handled = true;
  });
  std::thread link([&] { rank.listener().OnMessage(Poison{absl::UnavailableError("rank 2 died")}); });
  begun.WaitForNotification();
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}),
              StatusIs(absl::StatusCode::kUnavailable, "rank 2 died"));
  EXPECT_TRUE(handled);
  returned.Notify();
  link.join();
}

TEST(ControlPlaneTest, ACallThatWaitsReturnsThePoisonAfterTheHandlerHasRun) {
  absl::Notification sent;
  Rank rank([&](ControlLink::Listener&, const ControlMessage& message) {
    if (std::holds_alternative<Arrive>(message)) sent.Notify();
  });
  absl::Notification returned;
  std::atomic<bool> handled = false;
  rank->SetPoisonHandler([&](const absl::Status&) {
    returned.WaitForNotificationWithTimeout(absl::Milliseconds(100));
    handled = true;
  });
  std::thread link([&] {
    sent.WaitForNotification();
    rank.listener().OnMessage(Poison{absl::UnavailableError("rank 2 died")});
  });
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}),
              StatusIs(absl::StatusCode::kUnavailable, "rank 2 died"));
  EXPECT_TRUE(handled);
  returned.Notify();
  link.join();
}

TEST(ControlPlaneTest, APoisonHandlerThatComesTooLateIsCalledAtOnce) {
  std::vector<absl::Status> causes;
  Rank rank(&Silent);
  rank.listener().OnMessage(Poison{absl::UnavailableError("first")});
  rank->SetPoisonHandler([&](const absl::Status& cause) { causes.push_back(cause); });
  EXPECT_THAT(causes, ElementsAre(StatusIs(absl::StatusCode::kUnavailable, "first")));
}

TEST(ControlPlaneTest, AfterLeaveThereAreNoOperations) {
  Rank rank(Answering({}));
  EXPECT_THAT(rank->Leave(kLong), IsOk());
  auto left = StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("left the group"));
  EXPECT_THAT(rank->Meet({.operation = "step", .timeout = kLong}), left);
  EXPECT_THAT(rank->EnterData("Barrier"), left);
  EXPECT_THAT(rank->Leave(kLong), IsOk());
  EXPECT_EQ(rank.sent().size(), 1u);
}

TEST(ControlPlaneTest, LeaveReturnsWhatTheCoordinatorSays) {
  Rank rank([](ControlLink::Listener& listener, const ControlMessage& message) {
    if (std::holds_alternative<Goodbye>(message)) listener.OnMessage(Farewell{absl::DeadlineExceededError("rank 2")});
  });
  EXPECT_THAT(rank->Leave(kLong), StatusIs(absl::StatusCode::kDeadlineExceeded, "rank 2"));
}

TEST(ControlPlaneTest, LeavingAFailedGroupDoesNotWait) {
  Rank rank(&Silent);
  rank.listener().OnMessage(Poison{absl::UnavailableError("rank 2 is gone")});
  EXPECT_THAT(rank->Leave(kLong), IsOk());
}

TEST(ControlPlaneTest, LeavingACoordinatorThatIsGoneDoesNotWait) {
  Rank rank([](ControlLink::Listener& listener, const ControlMessage& message) {
    if (std::holds_alternative<Goodbye>(message)) listener.OnLost(absl::UnavailableError("rank 0 is gone"));
  });
  EXPECT_THAT(rank->Leave(kLong), IsOk());
}

TEST(ControlPlaneTest, AFailureOfOthersDoesNotDisturbWhoIsLeaving) {
  Rank rank([](ControlLink::Listener& listener, const ControlMessage& message) {
    if (!std::holds_alternative<Goodbye>(message)) return;
    listener.OnMessage(Poison{absl::UnavailableError("rank 2 is gone")});
    listener.OnMessage(Farewell{});
  });
  EXPECT_THAT(rank->Leave(kLong), IsOk());
}

TEST(ControlPlaneTest, TheDestructorSaysGoodbyeUnlessLeaveHas) {
  int num_goodbyes = 0;
  auto count = [&](ControlLink::Listener& listener, const ControlMessage& message) {
    if (!std::holds_alternative<Goodbye>(message)) return;
    ++num_goodbyes;
    listener.OnMessage(Farewell{});
  };
  { Rank rank(count); }
  EXPECT_EQ(num_goodbyes, 1);
  {
    Rank rank(count);
    EXPECT_THAT(rank->Leave(kLong), IsOk());
  }
  EXPECT_EQ(num_goodbyes, 2);
}

TEST(ControlPlaneTest, ACoordinatorThatSpeaksLikeARankIsNotTrusted) {
  Rank rank(&Silent);
  rank.listener().OnMessage(Goodbye{});
  EXPECT_THAT(rank->first_error(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0")));
}

}  // namespace
}  // namespace cohort::internal
