#include "cohort/runtime/internal/switchboard.h"

#include <atomic>
#include <thread>  // NOLINT
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/coordinator.h"
#include "cohort/runtime/internal/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;

// A rank's arrival at its `generation`th rendezvous.
void ArriveAt(Coordinator& coordinator, int rank, uint64_t generation, absl::Duration timeout = absl::Hours(1)) {
  EXPECT_THAT(
      coordinator.Handle(rank, Arrive{.generation = generation, .arrival = {.operation = "step", .timeout = timeout}},
                         SteadyNow()),
      IsOk());
}

TEST(SwitchboardTest, WhatAnEventCausesIsDeliveredBeforeUpdateReturns) {
  std::vector<int> recipients;
  Switchboard switchboard(2, [&](const Coordinator::Outgoing& outgoing) { recipients = outgoing.to; });
  switchboard.Update([](Coordinator& c) {
    c.Join(0, 1);
    c.Join(1, 1);
  });
  switchboard.Update([](Coordinator& c) { ArriveAt(c, 0, 1); });
  EXPECT_TRUE(recipients.empty());
  switchboard.Update([](Coordinator& c) { ArriveAt(c, 1, 1); });
  EXPECT_EQ(recipients, (std::vector<int>{0, 1}));
}

TEST(SwitchboardTest, DeliveryMayCauseEventsWhichAreDeliveredAfterIt) {
  constexpr uint64_t kRounds = 1000;  // nested, they would exhaust the stack
  std::vector<uint64_t> generations;
  Switchboard* self = nullptr;
  Switchboard switchboard(1, [&](const Coordinator::Outgoing& outgoing) {
    uint64_t generation = std::get<Outcome>(outgoing.message).generation;
    if (generation < kRounds) self->Update([=](Coordinator& c) { ArriveAt(c, 0, generation + 1); });
    generations.push_back(generation);
  });
  self = &switchboard;
  switchboard.Update([](Coordinator& c) {
    c.Join(0, 1);
    ArriveAt(c, 0, 1);
  });
  ASSERT_EQ(generations.size(), kRounds);
  for (uint64_t i = 0; i < kRounds; ++i) EXPECT_EQ(generations[i], i + 1);
}

TEST(SwitchboardTest, ManyThreadsGetOneOrder) {
  constexpr int kThreads = 4;
  constexpr uint64_t kRounds = 500;
  std::atomic<bool> delivering = false;
  std::vector<uint64_t> generations;
  Switchboard switchboard(kThreads, [&](const Coordinator::Outgoing& outgoing) {
    EXPECT_FALSE(delivering.exchange(true)) << "two deliveries at once";
    generations.push_back(std::get<Outcome>(outgoing.message).generation);
    delivering = false;
  });
  switchboard.Update([](Coordinator& c) {
    for (int rank = 0; rank < kThreads; ++rank) c.Join(rank, 1);
  });
  absl::Mutex mutex;
  uint64_t open = 1;  // the rendezvous that the threads may arrive at, and how many have
  int arrived = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kThreads; ++rank) {
    threads.emplace_back([&, rank] {
      for (uint64_t generation = 1; generation <= kRounds; ++generation) {
        auto may_arrive = [&] { return open == generation; };
        {
          absl::MutexLock lock(mutex);
          mutex.Await(absl::Condition(&may_arrive));
        }
        switchboard.Update([=](Coordinator& c) { ArriveAt(c, rank, generation); });
        absl::MutexLock lock(mutex);
        if (++arrived == kThreads) {
          arrived = 0;
          ++open;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(generations.size(), kRounds);
  for (uint64_t i = 0; i < kRounds; ++i) EXPECT_EQ(generations[i], i + 1);
}

TEST(SwitchboardTest, DeadlinesPassByThemselves) {
  absl::Notification poisoned;
  absl::Status cause;
  Switchboard switchboard(2, [&](const Coordinator::Outgoing& outgoing) {
    if (const Poison* poison = std::get_if<Poison>(&outgoing.message)) {
      cause = poison->cause;
      poisoned.Notify();
    }
  });
  switchboard.Update([](Coordinator& c) {
    c.Join(0, 1);
    ArriveAt(c, 0, 1, absl::Milliseconds(50));
  });
  poisoned.WaitForNotification();
  EXPECT_THAT(cause, StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(SwitchboardTest, AnEarlierDeadlineOvertakesALaterOne) {
  absl::Notification poisoned;
  Switchboard switchboard(3, [&](const Coordinator::Outgoing& outgoing) {
    if (std::holds_alternative<Poison>(outgoing.message)) poisoned.Notify();
  });
  switchboard.Update([](Coordinator& c) {
    c.Join(0, 1);
    c.Join(1, 1);
    ArriveAt(c, 0, 1, absl::Hours(1));
  });
  switchboard.Update([](Coordinator& c) { ArriveAt(c, 1, 1, absl::Milliseconds(50)); });
  poisoned.WaitForNotification();
}

}  // namespace
}  // namespace cohort::internal
