#include "cohort/trainers/data/prefetcher.h"

#include <atomic>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::Eq;
using ::testing::HasSubstr;

using Made = Prefetcher<int>::Made;

// Every test for both ways of making.
class PrefetcherTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Depths, PrefetcherTest, ::testing::Values(0, 1, 2, 7), ::testing::PrintToStringParamName());

TEST_P(PrefetcherTest, HandsOutInOrderThenTheEndForEver) {
  Prefetcher<int> prefetcher(GetParam(), [i = 0]() mutable -> Made {
    if (i == 100) return std::nullopt;
    return i++;
  });
  for (int i = 0; i < 100; ++i) EXPECT_THAT(prefetcher.Next(), IsOkAndHolds(Eq(i)));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(prefetcher.Next(), IsOkAndHolds(Eq(std::nullopt)));
}

TEST_P(PrefetcherTest, AnErrorComesAfterWhatWasMadeBeforeAndStays) {
  int calls = 0;
  {
    Prefetcher<int> prefetcher(GetParam(), [&calls]() -> Made {
      if (++calls == 3) return absl::DataLossError("the file is cut");
      return calls;
    });
    EXPECT_THAT(prefetcher.Next(), IsOkAndHolds(Eq(1)));
    EXPECT_THAT(prefetcher.Next(), IsOkAndHolds(Eq(2)));
    for (int i = 0; i < 3; ++i)
      EXPECT_THAT(prefetcher.Next(), StatusIs(absl::StatusCode::kDataLoss, "the file is cut"));
  }
  EXPECT_EQ(calls, 3);  // nothing is made after an error
}

TEST_P(PrefetcherTest, AnExceptionIsAnError) {
  Prefetcher<int> broken(GetParam(), []() -> Made { throw std::runtime_error("broken"); });
  EXPECT_THAT(broken.Next(), StatusIs(absl::StatusCode::kInternal, HasSubstr("broken")));
  EXPECT_FALSE(broken.Next().ok());
  Prefetcher<int> large(GetParam(), []() -> Made { throw std::bad_alloc(); });
  EXPECT_THAT(large.Next(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("exception")));
  Prefetcher<int> odd(GetParam(), []() -> Made { throw 3; });
  EXPECT_THAT(odd.Next(), StatusIs(absl::StatusCode::kUnknown, HasSubstr("not a std::exception")));
}

TEST_P(PrefetcherTest, WhatIsNotCopiedIsMoved) {
  Prefetcher<std::unique_ptr<int>> prefetcher(GetParam(), [] { return std::make_unique<int>(5); });
  absl::StatusOr<std::optional<std::unique_ptr<int>>> made = prefetcher.Next();
  ABSL_ASSERT_OK(made);
  EXPECT_EQ(***made, 5);
}

TEST_P(PrefetcherTest, WhatIsMadeAndNotHandedOutIsThrownAwayWithIt) {
  const auto counted = std::make_shared<int>(1);
  for (int handed_out = 0; handed_out < 20; ++handed_out) {
    Prefetcher<std::shared_ptr<int>> prefetcher(GetParam(), [counted] { return counted; });
    for (int i = 0; i < handed_out; ++i) ABSL_EXPECT_OK(prefetcher.Next());
  }
  EXPECT_EQ(counted.use_count(), 1);
}

TEST(PrefetcherTest, WithoutAThreadNothingIsMadeAhead) {
  int calls = 0;
  Prefetcher<int> prefetcher(0, [&calls] { return ++calls; });
  EXPECT_EQ(calls, 0);
  ABSL_EXPECT_OK(prefetcher.Next());
  EXPECT_EQ(calls, 1);
}

TEST(PrefetcherTest, MakesInAThreadOfItsOwnBeforeItIsAsked) {
  absl::BlockingCounter made(3);
  std::atomic<std::thread::id> maker;
  Prefetcher<int> prefetcher(3, [&, i = 0]() mutable {
    if (++i <= 3) {
      maker = std::this_thread::get_id();
      made.DecrementCount();
    }
    return i;
  });
  made.Wait();  // and nobody has called Next
  EXPECT_NE(maker.load(), std::this_thread::get_id());
}

TEST(PrefetcherTest, NeverMakesMoreThanItsDepthAhead) {
  constexpr int kDepth = 2;
  std::atomic<int> made = 0, taken = 0, most_ahead = 0;
  Prefetcher<int> prefetcher(kDepth, [&] {
    const int ahead = ++made - taken;
    if (ahead > most_ahead) most_ahead = ahead;
    return made.load();
  });
  for (int i = 0; i < 1000; ++i) {
    ++taken;  // before there is room for another one, so that the maker never sees too few
    ABSL_EXPECT_OK(prefetcher.Next());
  }
  EXPECT_LE(most_ahead, kDepth);
  EXPECT_GE(most_ahead, 1);
}

TEST(PrefetcherTest, DestructionWaitsForTheOneInTheMakingAndMakesNoMore) {
  absl::Notification begun, go_on;
  std::atomic<int> calls = 0;
  std::atomic<bool> is_finished = false;
  std::thread releaser;
  {
    Prefetcher<int> prefetcher(5, [&]() -> Made {
      ++calls;
      begun.Notify();
      go_on.WaitForNotification();
      is_finished = true;
      return 1;
    });
    begun.WaitForNotification();
    releaser = std::thread([&] { go_on.Notify(); });
  }
  EXPECT_TRUE(is_finished);
  releaser.join();
}

TEST(PrefetcherTest, CanBeDestroyedAtAnyMoment) {
  for (int i = 0; i < 300; ++i) {
    Prefetcher<int> prefetcher(1 + i % 3, [n = 0]() mutable -> Made { return ++n; });
    for (int k = 0; k < i % 5; ++k) ABSL_EXPECT_OK(prefetcher.Next());
  }
}

}  // namespace
}  // namespace cohort
