#include "cohort/tools/launch/front_link.h"

#include <signal.h>

#include <optional>

#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

TEST(FrontLinkTest, EachSignalIsHeardAsOftenAsItCameAndInOrder) {
  absl::StatusOr<FrontLink::Ends> ends = FrontLink::Open();
  ASSERT_THAT(ends, absl_testing::IsOk());
  EXPECT_EQ(ends->receiver.NextSignal(), std::nullopt);
  for (const int signal : {SIGUSR1, SIGINT, SIGINT}) EXPECT_TRUE(ends->sender.Send(signal));
  for (const int signal : {SIGUSR1, SIGINT, SIGINT}) EXPECT_EQ(ends->receiver.NextSignal(), signal);
  EXPECT_EQ(ends->receiver.NextSignal(), std::nullopt);
  EXPECT_FALSE(ends->receiver.is_broken());
}

TEST(FrontLinkTest, TheDeathOfTheOtherIsHeardAfterItsLastSignal) {
  absl::StatusOr<FrontLink::Ends> ends = FrontLink::Open();
  ASSERT_THAT(ends, absl_testing::IsOk());
  EXPECT_TRUE(ends->sender.Send(SIGTERM));
  ends->sender.Close();
  EXPECT_EQ(ends->receiver.NextSignal(), SIGTERM);
  EXPECT_FALSE(ends->receiver.is_broken());
  EXPECT_EQ(ends->receiver.NextSignal(), std::nullopt);
  EXPECT_TRUE(ends->receiver.is_broken());
}

TEST(FrontLinkTest, WhoIsNotHeardIsToldSo) {
  signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<FrontLink::Ends> ends = FrontLink::Open();
  ASSERT_THAT(ends, absl_testing::IsOk());
  ends->receiver = FrontLink();
  EXPECT_FALSE(ends->sender.Send(SIGTERM));
}

TEST(FrontLinkTest, NoFrontIsNeverHeard) {
  FrontLink none;
  EXPECT_EQ(none.fd(), -1);
  EXPECT_EQ(none.NextSignal(), std::nullopt);
  EXPECT_FALSE(none.is_broken());
}

}  // namespace
}  // namespace cohort::launch
