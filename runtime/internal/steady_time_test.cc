#include "cohort/runtime/internal/steady_time.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

TEST(SteadyTimeTest, AfterAndBetweenAreInverse) {
  SteadyTime start = SteadyNow();
  EXPECT_EQ(Between(start, After(start, absl::Milliseconds(1500))), absl::Milliseconds(1500));
}

TEST(SteadyTimeTest, ANegativeTimeoutIsNone) {
  SteadyTime start = SteadyNow();
  EXPECT_EQ(After(start, -absl::Seconds(1)), start);
  EXPECT_EQ(After(start, -absl::InfiniteDuration()), start);
}

TEST(SteadyTimeTest, AnInfiniteTimeoutIsLongAndDoesNotOverflow) {
  SteadyTime start = SteadyNow();
  EXPECT_GT(Between(start, After(start, absl::InfiniteDuration())), absl::Hours(24 * 365 * 9));
}

}  // namespace
}  // namespace cohort::internal
