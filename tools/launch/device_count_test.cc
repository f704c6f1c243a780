#include "cohort/tools/launch/device_count.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

// What the fake driver's answer is taken for. An absolute path or one with a slash: what dlopen() does not search for.
absl::StatusOr<int> CountWith(const char* answer) {
  setenv("FAKE_DRIVER", answer, 1);
  return CountGpus(getenv("DRIVER"));
}

TEST(CountGpusTest, TheDriverIsBelieved) {
  EXPECT_THAT(CountWith("0 3"), IsOkAndHolds(3));
  EXPECT_THAT(CountWith("0 0"), IsOkAndHolds(0));
}

TEST(CountGpusTest, NoDeviceAndNoDriverAreNone) {
  EXPECT_THAT(CountWith("100 7"), IsOkAndHolds(0));
  EXPECT_THAT(CountWith("34 7"), IsOkAndHolds(0));
  EXPECT_THAT(CountGpus("libno-such-driver.so.1"), IsOkAndHolds(0));
  EXPECT_THAT(CountGpus("libc.so.6"), IsOkAndHolds(0));
}

TEST(CountGpusTest, ADriverThatDoesNotWorkIsAnError) {
  EXPECT_THAT(CountWith("803 2"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("error 803")));
}

TEST(CountGpusTest, ADriverThatCrashesTakesOnlyItsOwnProcessAlong) {
  EXPECT_THAT(CountWith("crash"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("signal 6")));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(CountCpusTest, OnlyThoseThatThisProcessMayUseCount) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  EXPECT_EQ(CountCpus(), CPU_COUNT(&all));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(CountCpus(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

}  // namespace
}  // namespace cohort::launch
