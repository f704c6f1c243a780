// What a meeting costs each rank, as a number of messages and bytes and not as time: docs/launching.md says from these
// numbers what it would cost thousands. Between each rank and rank 0 stands a wiretap, which reads along.

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/testing/scripted_job.h"
#include "cohort/runtime/testing/serve_tcp_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace cohort {
namespace {

using ::cohort::testing::GiveSign;
using ::cohort::testing::NewPath;
using ::cohort::testing::ScriptedJob;
using ::cohort::testing::ScriptedRank;
using ::cohort::testing::StepReport;
using internal::SteadyNow;
using internal::UniqueFd;

struct Traffic {
  std::atomic<int64_t> num_messages = 0;
  std::atomic<int64_t> num_bytes = 0;
};

// Listens at a port of its own, and passes on what one rank and whoever listens at `port` say to each other. What it has
// counted is there before it is passed on.
class Wiretap {
 public:
  enum class Protocol { kControlMessages, kOther };

  Wiretap(int port, Protocol protocol) : port_(port), protocol_(protocol), listener_(*internal::ListenAt("127.0.0.1")) {
    thread_ = std::thread([this] { PassOn(); });
  }
  ~Wiretap() {
    is_over_ = true;
    thread_.join();
  }

  int port() const { return listener_.port; }
  const Traffic& from_rank() const { return from_rank_; }
  const Traffic& to_rank() const { return to_rank_; }

 private:
  struct Side {
    UniqueFd fd;
    Traffic& traffic;
    internal::FrameParser parser{internal::kMaxBodyBytes};
  };
  struct Line {
    Side rank;
    Side host;
  };

  // Rank 0 may not listen yet.
  UniqueFd ConnectToHost() {
    while (!is_over_) {
      absl::StatusOr<UniqueFd> connection =
          internal::ConnectTo("127.0.0.1", port_, internal::After(SteadyNow(), absl::Seconds(10)));
      if (connection.ok()) return *std::move(connection);
      absl::SleepFor(absl::Milliseconds(2));
    }
    return UniqueFd();
  }

  void PassOn() {
    std::list<Line> lines;
    while (!is_over_) {
      UniqueFd rank = internal::AcceptFrom(listener_.fd).value();
      if (rank.is_open()) lines.push_back({{std::move(rank), from_rank_}, {ConnectToHost(), to_rank_}});
      std::vector<pollfd> watched = {{.fd = listener_.fd.get(), .events = POLLIN}};
      for (const Line& line : lines) {
        watched.push_back({.fd = line.rank.fd.get(), .events = POLLIN});
        watched.push_back({.fd = line.host.fd.get(), .events = POLLIN});
      }
      poll(watched.data(), watched.size(), /*timeout=*/20);
      lines.remove_if([&](Line& line) { return !PassOn(line.rank, line.host) || !PassOn(line.host, line.rank); });
    }
  }

  // False at the end.
  bool PassOn(Side& from, Side& to) {
    char buffer[64 << 10];
    const ssize_t size = recv(from.fd.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (size < 0) return errno == EAGAIN || errno == EINTR;
    if (size == 0) return false;
    from.traffic.num_bytes += size;
    if (protocol_ == Protocol::kControlMessages) {
      from.parser.Append(std::string_view(buffer, size));
      while (from.parser.Next().value().has_value()) ++from.traffic.num_messages;
    }
    for (ssize_t sent = 0; sent < size;) {
      const ssize_t part = send(to.fd.get(), buffer + sent, size - sent, MSG_NOSIGNAL);
      if (part < 0 && errno != EAGAIN && errno != EINTR) return false;
      if (part > 0) sent += part;
    }
    return true;
  }

  const int port_;
  const Protocol protocol_;
  const internal::Listener listener_;
  Traffic from_rank_;
  Traffic to_rank_;
  std::atomic<bool> is_over_ = false;
  std::thread thread_;
};

struct Cost {
  int64_t messages_from_rank = 0;
  int64_t messages_to_rank = 0;
  int64_t bytes_from_rank = 0;
  int64_t bytes_to_rank = 0;
};

// What the last of `world_size` ranks and whoever listens at the meeting point say to each other until all have a group.
Cost CostOfLastRank(ScriptedJob& job, int world_size, int port, Wiretap::Protocol protocol,
                    ScriptedRank::Environment environment) {
  const std::string sign = NewPath("sign");
  const std::vector<std::string> steps = {"init=gloo", absl::StrCat("await=", sign), "shutdown"};
  std::vector<std::unique_ptr<Wiretap>> taps;
  std::vector<ScriptedRank> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    environment["MASTER_PORT"] = absl::StrCat(port);
    if (rank != 0) {
      taps.push_back(std::make_unique<Wiretap>(port, protocol));
      environment["MASTER_PORT"] = absl::StrCat(taps.back()->port());
    }
    ranks.push_back(job.Start(rank, steps, environment));
  }
  for (ScriptedRank& rank : ranks) {
    for (const StepReport& report : rank.AwaitSteps(1)) EXPECT_EQ(report.code, "OK") << report.text;
  }
  const Wiretap& last = *taps.back();
  const Cost cost = {.messages_from_rank = last.from_rank().num_messages,
                     .messages_to_rank = last.to_rank().num_messages,
                     .bytes_from_rank = last.from_rank().num_bytes,
                     .bytes_to_rank = last.to_rank().num_bytes};
  GiveSign(sign);
  for (ScriptedRank& rank : ranks) {
    for (const StepReport& report : rank.AwaitEnd()) EXPECT_EQ(report.code, "OK") << report.text;
  }
  return cost;
}

Cost CostOfMeeting(int world_size) {
  ScriptedJob job(world_size);
  return CostOfLastRank(job, world_size, job.port(), Wiretap::Protocol::kControlMessages, {});
}

TEST(MeetingCostTest, MessagesOfARankDoNotGrowWithTheWorld) {
  for (const int world_size : {2, 4, 8}) {
    const Cost cost = CostOfMeeting(world_size);
    std::printf("%d ranks: a rank sends %ld messages (%ld bytes) and gets %ld (%ld bytes)\n", world_size,
                cost.messages_from_rank, cost.bytes_from_rank, cost.messages_to_rank, cost.bytes_to_rank);
    // Hello, and an arrival at the meeting, at the exchange of gloo's addresses, and at the end.
    EXPECT_EQ(cost.messages_from_rank, 4) << world_size;
    EXPECT_EQ(cost.messages_to_rank, 3) << world_size;
    // What a rank says of itself, and eight bytes for each other in gloo's address; and everybody's to everybody. Of the
    // numbers in docs/launching.md, with room for longer process ids and names.
    const double n = world_size;
    EXPECT_LE(cost.bytes_from_rank, 700 + 8 * n) << world_size;
    EXPECT_LE(cost.bytes_to_rank, 150 + 400 * n + 8 * n * n) << world_size;
    EXPECT_GE(cost.bytes_to_rank, 200 * n) << world_size << ": it heard less than all have to say";
  }
}

TEST(MeetingCostTest, OfAStoreEachRankAsksAsMuchWhateverTheSizeOfTheWorld) {
  std::vector<Cost> costs;
  for (const int world_size : {2, 4, 8}) {
    const c10::intrusive_ptr<c10d::TCPStore> store = testing::ServeTcpStore();
    ScriptedJob job(world_size);
    costs.push_back(CostOfLastRank(job, world_size, store->getPort(), Wiretap::Protocol::kOther,
                                   {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}));
    std::printf("%d ranks: a rank sends the agent's store %ld bytes and gets %ld\n", world_size,
                costs.back().bytes_from_rank, costs.back().bytes_to_rank);
    EXPECT_GT(costs.back().bytes_to_rank, 0) << "it met somewhere else";
    EXPECT_NEAR(costs.back().bytes_from_rank, costs.front().bytes_from_rank, 8);
    EXPECT_NEAR(costs.back().bytes_to_rank, costs.front().bytes_to_rank, 8);
    EXPECT_LT(costs.back().bytes_from_rank + costs.back().bytes_to_rank, 1000);
    // The place, and what the store itself keeps: it grows no faster than by one key a rank.
    EXPECT_LE(store->getNumKeys(), world_size + 2);
  }
}

}  // namespace
}  // namespace cohort
