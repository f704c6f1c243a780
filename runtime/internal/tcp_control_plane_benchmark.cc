// How long a rendezvous takes over TCP on this machine, ranks as processes: the control plane's share of
// ProcessGroup::Agree.
//
//   bazel run -c opt //runtime/internal:tcp_control_plane_benchmark

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/tcp_control_plane.h"

namespace cohort::internal {
namespace {

constexpr int kWarmUp = 200;
constexpr int kRounds = 2000;

// Meets the others through `pipe_fds` and goes through the rounds; rank 0 prints what they took.
void RunRank(int rank, int world_size, const int pipe_fds[2]) {
  MeetingOptions options{.rank = rank, .world_size = world_size, .run_id = "benchmark", .timeout = absl::Seconds(30)};
  char endpoint[256] = {};
  absl::StatusOr<Meeting> meeting =
      rank == 0
          ? HostMeeting(options, "127.0.0.1",
                        [&](std::string_view text) {
                          text.copy(endpoint, sizeof(endpoint));
                          // One for each of the others: a record of fixed size.
                          for (int i = 1; i < world_size; ++i) {
                            ABSL_CHECK_EQ(write(pipe_fds[1], endpoint, sizeof(endpoint)), ssize_t{sizeof(endpoint)});
                          }
                          return absl::OkStatus();
                        })
          : JoinMeeting(options, [&](absl::Duration) -> absl::StatusOr<std::string> {
              ABSL_CHECK_EQ(read(pipe_fds[0], endpoint, sizeof(endpoint)), ssize_t{sizeof(endpoint)});
              return std::string(endpoint);
            });
  ABSL_CHECK(meeting.ok()) << meeting.status();
  std::vector<absl::Duration> times;
  for (int i = 0; i < kWarmUp + kRounds; ++i) {
    SteadyTime start = SteadyNow();
    absl::Status met = meeting->control_plane->Meet({.operation = "round", .timeout = absl::Minutes(1)}).status();
    ABSL_CHECK(met.ok()) << met;
    if (i >= kWarmUp) times.push_back(Between(start, SteadyNow()));
  }
  std::ranges::sort(times);
  if (rank == 0) {
    std::printf("%d ranks: p50 %.1f us, p90 %.1f us, p99 %.1f us\n", world_size,
                absl::ToDoubleMicroseconds(times[kRounds / 2]), absl::ToDoubleMicroseconds(times[kRounds * 9 / 10]),
                absl::ToDoubleMicroseconds(times[kRounds * 99 / 100]));
  }
  absl::Status left = meeting->control_plane->Leave(absl::Seconds(30));
  ABSL_CHECK(left.ok()) << left;
}

void Measure(int world_size) {
  int pipe_fds[2];
  ABSL_CHECK_EQ(pipe(pipe_fds), 0);
  for (int rank = 1; rank < world_size; ++rank) {
    if (fork() == 0) {
      RunRank(rank, world_size, pipe_fds);
      _exit(0);
    }
  }
  RunRank(0, world_size, pipe_fds);
  while (wait(nullptr) > 0) continue;
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

}  // namespace
}  // namespace cohort::internal

int main() {
  for (int round = 0; round < 3; ++round) {
    for (int world_size : {2, 4}) cohort::internal::Measure(world_size);
  }
}
