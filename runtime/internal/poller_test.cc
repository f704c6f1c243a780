#include "cohort/runtime/internal/poller.h"

#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <thread>  // NOLINT
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/internal/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::testing::IsEmpty;

class PollerTest : public ::testing::Test {
 protected:
  PollerTest() {
    absl::StatusOr<std::unique_ptr<Poller>> poller = Poller::Create();
    ABSL_CHECK(poller.ok()) << poller.status();
    poller_ = *std::move(poller);
    int fds[2];
    ABSL_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    near_ = UniqueFd(fds[0]);
    far_ = UniqueFd(fds[1]);
  }

  std::unique_ptr<Poller> poller_;
  UniqueFd near_;
  UniqueFd far_;
};

TEST_F(PollerTest, TellsWhichSocketIsReadable) {
  ASSERT_THAT(poller_->Add(near_.get(), 42), IsOk());
  ASSERT_EQ(write(far_.get(), "x", 1), 1);
  std::vector<Poller::Event> events = poller_->Wait();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].key, 42u);
  EXPECT_TRUE(events[0].readable);
  EXPECT_FALSE(events[0].writable);
}

TEST_F(PollerTest, WatchesForWritingOnlyOnRequest) {
  ASSERT_THAT(poller_->Add(near_.get(), 42), IsOk());
  poller_->WatchWritable(near_.get(), 42, true);
  std::vector<Poller::Event> events = poller_->Wait();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_FALSE(events[0].readable);
  EXPECT_TRUE(events[0].writable);
  poller_->WatchWritable(near_.get(), 42, false);
  poller_->Wake();
  EXPECT_THAT(poller_->Wait(), IsEmpty());
}

TEST_F(PollerTest, ACloseIsReadable) {
  ASSERT_THAT(poller_->Add(near_.get(), 42), IsOk());
  far_ = UniqueFd();
  std::vector<Poller::Event> events = poller_->Wait();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].readable);
}

TEST_F(PollerTest, ARemovedSocketIsQuiet) {
  ASSERT_THAT(poller_->Add(near_.get(), 42), IsOk());
  ASSERT_EQ(write(far_.get(), "x", 1), 1);
  poller_->Remove(near_.get());
  poller_->Wake();
  EXPECT_THAT(poller_->Wait(), IsEmpty());
}

TEST_F(PollerTest, WakeEndsTheWaitOfAnotherThread) {
  std::thread waker([&] { poller_->Wake(); });
  EXPECT_THAT(poller_->Wait(), IsEmpty());
  waker.join();
}

TEST_F(PollerTest, ASocketMayComeWhileAThreadWaits) {
  std::thread other([&] {
    EXPECT_THAT(poller_->Add(near_.get(), 42), IsOk());
    EXPECT_EQ(write(far_.get(), "x", 1), 1);
  });
  EXPECT_EQ(poller_->Wait().size(), 1u);
  other.join();
}

}  // namespace
}  // namespace cohort::internal
