#include "cohort/runtime/internal/frame_channel.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/socket.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::shared_ptr<const std::string> Frame(const ControlMessage& message) {
  return std::make_shared<const std::string>(EncodeFrame(message));
}

class FrameChannelTest : public ::testing::Test {
 protected:
  FrameChannelTest() {
    int fds[2];
    ABSL_CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    near_ = std::make_unique<FrameChannel>(UniqueFd(fds[0]), kMaxBodyBytes);
    far_ = std::make_unique<FrameChannel>(UniqueFd(fds[1]), kMaxBodyBytes);
  }

  std::unique_ptr<FrameChannel> near_;
  std::unique_ptr<FrameChannel> far_;
  std::vector<ControlMessage> messages_;
};

TEST_F(FrameChannelTest, MessagesArriveInOrder) {
  for (uint64_t i = 0; i < 100; ++i) near_->Send(Frame(WhereAreYou{.inquiry = i}));
  EXPECT_FALSE(near_->has_output());
  EXPECT_THAT(far_->Receive(messages_), IsOk());
  ASSERT_THAT(messages_, SizeIs(100));
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(std::get<WhereAreYou>(messages_[i]).inquiry, i);
}

TEST_F(FrameChannelTest, WithoutInputThereAreNoMessages) {
  EXPECT_THAT(far_->Receive(messages_), IsOk());
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(FrameChannelTest, WhatTheSocketDoesNotTakeWaits) {
  const std::string payload(20 << 20, 'x');
  near_->Send(Frame(Outcome{.generation = 1, .payloads = {payload}}));
  near_->Send(Frame(WhereAreYou{.inquiry = 7}));
  EXPECT_TRUE(near_->has_output());
  int rounds = 0;
  while (messages_.size() < 2) {
    ASSERT_THAT(far_->Receive(messages_), IsOk());
    near_->Flush();
    ASSERT_LT(++rounds, 100'000);
  }
  EXPECT_FALSE(near_->has_output());
  EXPECT_EQ(std::get<Outcome>(messages_[0]).payloads[0], payload);
  EXPECT_EQ(std::get<WhereAreYou>(messages_[1]).inquiry, 7u);
}

TEST_F(FrameChannelTest, MessagesBeforeAnEndAreNotLost) {
  near_->Send(Frame(Goodbye{}));
  near_ = nullptr;
  EXPECT_THAT(far_->Receive(messages_), IsOk());
  EXPECT_THAT(messages_, SizeIs(1));
  EXPECT_THAT(far_->Receive(messages_), StatusIs(absl::StatusCode::kUnavailable));
}

TEST_F(FrameChannelTest, AnEndInTheMiddleOfAMessageIsAnEnd) {
  std::string frame = EncodeFrame(Goodbye{});
  ASSERT_EQ(write(near_->fd(), frame.data(), 5), 5);
  near_->FinishSending();
  EXPECT_THAT(far_->Receive(messages_), IsOk());
  EXPECT_THAT(far_->Receive(messages_), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(FrameChannelTest, WhatIsNotOurProtocolIsRefused) {
  ASSERT_EQ(write(near_->fd(), "GET / HTTP/1.1\r\n", 16), 16);
  EXPECT_THAT(far_->Receive(messages_), StatusIs(absl::StatusCode::kInvalidArgument));
}

// SIGPIPE would end the test.
TEST_F(FrameChannelTest, SendingIntoABrokenConnectionIsQuiet) {
  far_ = nullptr;
  near_->Send(Frame(Goodbye{}));
  near_->Send(Frame(Goodbye{}));
  EXPECT_FALSE(near_->has_output());
  EXPECT_THAT(near_->Receive(messages_), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace cohort::internal
