#include "cohort/tools/launch/poller.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

struct Pipe {
  Pipe() {
    int fds[2];
    EXPECT_EQ(pipe(fds), 0);
    read = UniqueFd(fds[0]);
    write = UniqueFd(fds[1]);
  }
  UniqueFd read;
  UniqueFd write;
};

std::vector<size_t> Indices(const std::vector<Event>& events) {
  std::vector<size_t> indices;
  for (const Event& event : events) indices.push_back(event.index);
  return indices;
}

TEST(PollerTest, EventsOfOneKindComeInTheOrderInWhichTheyHappened) {
  absl::StatusOr<Poller> poller = Poller::Open();
  ASSERT_THAT(poller, absl_testing::IsOk());
  Pipe pipes[4];
  for (size_t i = 0; i < 4; ++i) poller->Watch(pipes[i].read.get(), {Source::kRankExit, i}, EPOLLIN);
  for (const size_t i : {2, 0, 3, 1}) ASSERT_EQ(write(pipes[i].write.get(), "x", 1), 1);
  const std::vector<Event> events = poller->Wait(absl::ZeroDuration());
  EXPECT_THAT(Indices(events), ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(events, ElementsAre(Field(&Event::order, 1), Field(&Event::order, 2), Field(&Event::order, 3),
                                  Field(&Event::order, 4)));
  EXPECT_EQ(poller->num_events(), 4);
}

TEST(PollerTest, UrgentEventsComeFirstAndKeepTheirNumbers) {
  absl::StatusOr<Poller> poller = Poller::Open();
  ASSERT_THAT(poller, absl_testing::IsOk());
  Pipe pipes[3];
  const Source sources[] = {Source::kRankOut, Source::kSignal, Source::kRankExit};
  for (size_t i = 0; i < 3; ++i) {
    poller->Watch(pipes[i].read.get(), {sources[i], i}, EPOLLIN);
    ASSERT_EQ(write(pipes[i].write.get(), "x", 1), 1);
  }
  const std::vector<Event> events = poller->Wait(absl::ZeroDuration());
  EXPECT_THAT(Indices(events), ElementsAre(2, 1, 0));
  EXPECT_THAT(events, ElementsAre(Field(&Event::order, 3), Field(&Event::order, 2), Field(&Event::order, 1)));
}

TEST(PollerTest, WatchingForNothingTellsOfTheHangUpAlone) {
  absl::StatusOr<Poller> poller = Poller::Open();
  ASSERT_THAT(poller, absl_testing::IsOk());
  Pipe early, late;
  poller->Watch(late.read.get(), {Source::kRankLifeline, 1}, 0);
  poller->Watch(early.read.get(), {Source::kRankLifeline, 0}, 0);
  // Bytes in the pipe do not count, not even for the order.
  ASSERT_EQ(write(late.write.get(), "x", 1), 1);
  EXPECT_THAT(poller->Wait(absl::ZeroDuration()), IsEmpty());
  early.write.reset();
  late.write.reset();
  EXPECT_THAT(Indices(poller->Wait(absl::ZeroDuration())), ElementsAre(0, 1));
}

TEST(PollerTest, WatchingTwiceAndUnwatchingTwiceIsOnce) {
  absl::StatusOr<Poller> poller = Poller::Open();
  ASSERT_THAT(poller, absl_testing::IsOk());
  Pipe pipe;
  ASSERT_EQ(write(pipe.write.get(), "x", 1), 1);
  poller->Watch(pipe.read.get(), {Source::kRankOut, 1}, EPOLLIN);
  poller->Watch(pipe.read.get(), {Source::kRankOut, 2}, EPOLLIN);
  EXPECT_THAT(Indices(poller->Wait(absl::ZeroDuration())), ElementsAre(1));
  poller->Unwatch(pipe.read.get());
  poller->Unwatch(pipe.read.get());
  EXPECT_THAT(poller->Wait(absl::ZeroDuration()), IsEmpty());
}

TEST(PollerTest, AWaitIsNotShorterThanItsTimeout) {
  absl::StatusOr<Poller> poller = Poller::Open();
  ASSERT_THAT(poller, absl_testing::IsOk());
  const absl::Duration timeout = absl::Microseconds(1500);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(poller->Wait(timeout), IsEmpty());
  EXPECT_GE(absl::FromChrono(std::chrono::steady_clock::now() - start), timeout);
}

}  // namespace
}  // namespace cohort::launch
