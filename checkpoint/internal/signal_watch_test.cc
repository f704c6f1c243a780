#include "cohort/checkpoint/internal/signal_watch.h"

#include <signal.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::StartsWith;

std::unique_ptr<SignalWatch> Watch(int signal) {
  absl::StatusOr<std::unique_ptr<SignalWatch>> watch = SignalWatch::Start(signal);
  EXPECT_THAT(watch, IsOk());
  return *std::move(watch);
}

struct sigaction ActionOf(int signal) {
  struct sigaction action;
  EXPECT_EQ(sigaction(signal, nullptr, &action), 0);
  return action;
}

void Theirs(int) {}

TEST(SignalWatchTest, SeesASignalUntilItIsForgotten) {
  const auto watch = Watch(SIGUSR1);
  EXPECT_FALSE(watch->Look());
  ASSERT_EQ(raise(SIGUSR1), 0);
  EXPECT_TRUE(watch->Look());
  EXPECT_TRUE(watch->Look());
  watch->Forget();
  EXPECT_FALSE(watch->Look());
}

TEST(SignalWatchTest, ASignalAfterTheLookIsNotForgotten) {
  const auto watch = Watch(SIGUSR1);
  ASSERT_EQ(raise(SIGUSR1), 0);
  EXPECT_TRUE(watch->Look());
  ASSERT_EQ(raise(SIGUSR1), 0);
  watch->Forget();
  EXPECT_TRUE(watch->Look());
}

TEST(SignalWatchTest, SeesASignalThatAnotherThreadGot) {
  const auto watch = Watch(SIGUSR1);
  std::thread([] { raise(SIGUSR1); }).join();
  EXPECT_TRUE(watch->Look());
}

TEST(SignalWatchTest, WhatWasDoneAtTheSignalBeforeIsDoneAgain) {
  ASSERT_EQ(ActionOf(SIGUSR1).sa_handler, SIG_DFL);
  Watch(SIGUSR1);
  EXPECT_EQ(ActionOf(SIGUSR1).sa_handler, SIG_DFL);
  ASSERT_NE(signal(SIGUSR1, Theirs), SIG_ERR);
  {
    const auto watch = Watch(SIGUSR1);
    EXPECT_NE(ActionOf(SIGUSR1).sa_handler, Theirs);
    EXPECT_NE(ActionOf(SIGUSR1).sa_flags & SA_RESTART, 0);
  }
  EXPECT_EQ(ActionOf(SIGUSR1).sa_handler, Theirs);
  ASSERT_NE(signal(SIGUSR1, SIG_DFL), SIG_ERR);
}

TEST(SignalWatchTest, OnlyTheLastOfSeveralPutsItBack) {
  auto first = Watch(SIGUSR1);
  const auto second = Watch(SIGUSR1);
  first.reset();
  ASSERT_EQ(raise(SIGUSR1), 0);
  EXPECT_TRUE(second->Look());
}

TEST(SignalWatchTest, AHandlerThatSomebodyElseHasInstalledMeanwhileStays) {
  auto watch = Watch(SIGUSR1);
  ASSERT_NE(signal(SIGUSR1, Theirs), SIG_ERR);
  watch.reset();
  EXPECT_EQ(ActionOf(SIGUSR1).sa_handler, Theirs);
  ASSERT_NE(signal(SIGUSR1, SIG_DFL), SIG_ERR);
}

TEST(SignalWatchTest, AWatchThatIsLeftInPlaceKeepsTheSignalFromDoingWhatItDid) {
  ASSERT_EQ(ActionOf(SIGHUP).sa_handler, SIG_DFL);
  Watch(SIGHUP)->LeaveInPlace();
  EXPECT_NE(ActionOf(SIGHUP).sa_handler, SIG_DFL);
  ASSERT_EQ(raise(SIGHUP), 0);
  // Later ones do not put it back either.
  Watch(SIGHUP);
  ASSERT_EQ(raise(SIGHUP), 0);
}

TEST(SignalWatchTest, OtherSignalsAreLeftAlone) {
  // Some may have handlers: the sanitizers'.
  const auto actions = [] {
    std::vector<void (*)(int)> handlers;
    for (int signal = 1; signal < SIGRTMIN; ++signal) {
      struct sigaction action = {};
      if (signal != SIGUSR1 && sigaction(signal, nullptr, &action) == 0) handlers.push_back(action.sa_handler);
    }
    return handlers;
  };
  const std::vector<void (*)(int)> before = actions();
  EXPECT_GT(before.size(), 20u);
  const auto watch = Watch(SIGUSR1);
  EXPECT_EQ(actions(), before);
}

TEST(SignalWatchTest, WhatIsNoSignalOrNotToBeCaughtIsRefused) {
  for (const int signal : {0, -1, NSIG, SIGKILL, SIGSTOP, SIGSEGV, SIGABRT, 32 /* the C library's */}) {
    EXPECT_THAT(SignalWatch::Start(signal, "the_option"),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith(absl::StrCat("the_option=", signal, ": "))));
  }
}

}  // namespace
}  // namespace cohort::internal
