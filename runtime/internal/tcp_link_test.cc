#include "cohort/runtime/internal/tcp_link.h"

#include <poll.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/frame_channel.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

// Notes what the link says, and lets the test wait for it.
class Inbox final : public ControlLink::Listener {
 public:
  void OnMessage(ControlMessage message) override {
    absl::MutexLock lock(mutex_);
    messages_.push_back(std::move(message));
  }
  void OnLost(const absl::Status& why) override {
    absl::MutexLock lock(mutex_);
    lost_ = why;
  }

  std::vector<ControlMessage> AwaitMessages(size_t count) {
    absl::MutexLock lock(mutex_);
    auto arrived = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return messages_.size() >= count; };
    mutex_.Await(absl::Condition(&arrived));
    return messages_;
  }
  absl::Status AwaitLost() {
    absl::MutexLock lock(mutex_);
    auto lost = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !lost_.ok(); };
    mutex_.Await(absl::Condition(&lost));
    return lost_;
  }

 private:
  absl::Mutex mutex_;
  std::vector<ControlMessage> messages_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
};

// A link, and the coordinator's end of its connection.
class TcpLinkTest : public ::testing::Test {
 protected:
  TcpLinkTest() {
    absl::StatusOr<Listener> listener = ListenAt("127.0.0.1");
    ABSL_CHECK(listener.ok()) << listener.status();
    absl::StatusOr<UniqueFd> near = ConnectTo("127.0.0.1", listener->port, After(SteadyNow(), absl::Seconds(60)));
    ABSL_CHECK(near.ok()) << near.status();
    absl::StatusOr<UniqueFd> far = AcceptFrom(listener->fd);
    ABSL_CHECK(far.ok() && far->is_open()) << far.status();
    coordinator_ = std::make_unique<FrameChannel>(*std::move(far), kMaxBodyBytes);
    absl::StatusOr<std::unique_ptr<TcpLink>> link = TcpLink::Create(*std::move(near), {.token = "t", .rank = 1});
    ABSL_CHECK(link.ok()) << link.status();
    link_ = *std::move(link);
  }

  // What the coordinator hears next.
  ControlMessage HearNext() {
    while (heard_.empty()) {
      pollfd poll_fd = {.fd = coordinator_->fd(), .events = POLLIN, .revents = 0};
      ABSL_CHECK_EQ(poll(&poll_fd, 1, 60'000), 1);
      absl::Status received = coordinator_->Receive(heard_);
      ABSL_CHECK(received.ok() || !heard_.empty()) << received;
    }
    ControlMessage message = std::move(heard_.front());
    heard_.erase(heard_.begin());
    return message;
  }
  void Say(const ControlMessage& message) { SayBytes(EncodeFrame(message)); }
  void SayBytes(std::string bytes) { coordinator_->Send(std::make_shared<const std::string>(std::move(bytes))); }

  std::unique_ptr<FrameChannel> coordinator_;
  Inbox inbox_;
  std::unique_ptr<TcpLink> link_;  // stops before its inbox goes

 private:
  std::vector<ControlMessage> heard_;
};

TEST_F(TcpLinkTest, SaysHelloFirst) {
  link_->Start(&inbox_);
  link_->Send(Goodbye{});
  ControlMessage hello = HearNext();
  ASSERT_TRUE(std::holds_alternative<Hello>(hello));
  EXPECT_EQ(std::get<Hello>(hello).rank, 1);
  EXPECT_TRUE(std::holds_alternative<Goodbye>(HearNext()));
}

TEST_F(TcpLinkTest, PassesOnWhatItHears) {
  link_->Start(&inbox_);
  Say(WhereAreYou{.inquiry = 1});
  Say(WhereAreYou{.inquiry = 2});
  std::vector<ControlMessage> messages = inbox_.AwaitMessages(2);
  EXPECT_EQ(std::get<WhereAreYou>(messages[0]).inquiry, 1u);
  EXPECT_EQ(std::get<WhereAreYou>(messages[1]).inquiry, 2u);
}

TEST_F(TcpLinkTest, TellsWhenTheCoordinatorIsGoneAndWhatItSaidBefore) {
  link_->Start(&inbox_);
  Say(WhereAreYou{.inquiry = 1});
  coordinator_ = nullptr;
  EXPECT_THAT(inbox_.AwaitLost(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 is gone")));
  EXPECT_EQ(inbox_.AwaitMessages(1).size(), 1u);
  EXPECT_FALSE(link_->was_dropped());
  link_->Send(Goodbye{});
}

TEST_F(TcpLinkTest, TellsWhenTheConnectionEndsBeforeAnythingWasSaid) {
  EXPECT_FALSE(link_->was_dropped());
  link_->Start(&inbox_);
  coordinator_ = nullptr;
  EXPECT_THAT(inbox_.AwaitLost(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 is gone")));
  EXPECT_TRUE(link_->was_dropped());
}

TEST_F(TcpLinkTest, WhoSpeaksNonsenseFromTheBeginningIsNotRankZero) {
  link_->Start(&inbox_);
  SayBytes("SSH-2.0-OpenSSH_9.6\r\n");
  EXPECT_THAT(inbox_.AwaitLost(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                           absl::StrCat("what listens at 127.0.0.1:", link_->remote().port,
                                                        " is not rank 0 of a cohort job")));
  EXPECT_FALSE(link_->was_dropped());
}

TEST_F(TcpLinkTest, ARankZeroThatSpeaksNonsenseIsGone) {
  link_->Start(&inbox_);
  Say(WhereAreYou{.inquiry = 1});
  SayBytes("SSH-2.0-OpenSSH_9.6\r\n");
  EXPECT_THAT(inbox_.AwaitLost(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0 is gone")));
}

TEST_F(TcpLinkTest, SendingDoesNotWaitForTheReader) {
  link_->Start(&inbox_);
  const std::string payload(kMaxPayloadBytes, 'x');
  link_->Send(Arrive{.generation = 1, .arrival = {.payload = payload}});
  link_->Send(Goodbye{});
  EXPECT_TRUE(std::holds_alternative<Hello>(HearNext()));
  ControlMessage arrive = HearNext();
  ASSERT_TRUE(std::holds_alternative<Arrive>(arrive));
  EXPECT_EQ(std::get<Arrive>(arrive).arrival.payload, payload);
  EXPECT_TRUE(std::holds_alternative<Goodbye>(HearNext()));
}

TEST_F(TcpLinkTest, WhatWasSentArrivesAlthoughTheLinkIsGone) {
  link_->Start(&inbox_);
  Say(WhereAreYou{.inquiry = 1});  // perhaps unread when the link closes
  link_->Send(Goodbye{});
  link_ = nullptr;
  EXPECT_TRUE(std::holds_alternative<Hello>(HearNext()));
  EXPECT_TRUE(std::holds_alternative<Goodbye>(HearNext()));
}

TEST_F(TcpLinkTest, ALinkThatNeverStartedJustCloses) { link_ = nullptr; }

}  // namespace
}  // namespace cohort::internal
