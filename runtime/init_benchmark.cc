// How long ranks of one machine take until each has its group, from the moment when the last of them is there, as processes
// on loopback, both ways in turn in one run:
//
//   InitProcessGroup            aim: 0.1 s for 32 ranks, however they come
//   TCPStore, ProcessGroupGloo  what a program does with LibTorch alone: no rank learns who is missing, has died, or differs;
//                               and whoever comes before rank 0 listens tries again only after some hundred milliseconds
//
//   bazel run -c opt //runtime:init_benchmark [-- --smoke]

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/internal/plain_gloo.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace cohort {
namespace {

using internal::SteadyNow;
using internal::SteadyTime;

// Shared by all ranks: the steady clock is the machine's, so times of different processes can be compared.
struct Board {
  std::atomic<int> num_ready;
  std::atomic<int> num_connected;
  std::atomic<SteadyTime::rep> start;
  std::atomic<SteadyTime::rep> end;
};

Board* NewBoard() {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ABSL_CHECK(memory != MAP_FAILED) << strerror(errno);
  return new (memory) Board();
}

void NoteTheLatest(std::atomic<SteadyTime::rep>& place) {
  const SteadyTime::rep now = SteadyNow().time_since_epoch().count();
  for (SteadyTime::rep before = place; before < now && !place.compare_exchange_weak(before, now);) {
  }
}

// Waits until every rank has come here.
void Gather(std::atomic<int>& num_here, int world_size) {
  ++num_here;
  while (num_here < world_size) usleep(200);
}

// Connects one rank, and keeps what it has made until every rank is connected.
using Connect = std::function<void(const RankInfo& info, const std::function<void()>& connected)>;

// The time from the last rank's start to the last rank's group.
absl::Duration Measure(int world_size, const Connect& connect) {
  Board& board = *NewBoard();
  const int port = internal::ListenAt("127.0.0.1")->port;  // free now, and nobody else is in a hurry to take it
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    ABSL_CHECK_GE(pid, 0) << strerror(errno);
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    Gather(board.num_ready, world_size);
    NoteTheLatest(board.start);
    connect({.rank = rank,
             .world_size = world_size,
             .local_rank = rank,
             .has_local_rank = true,
             .local_world_size = world_size,
             .master_addr = "127.0.0.1",
             .master_port = port},
            [&] {
              NoteTheLatest(board.end);
              Gather(board.num_connected, world_size);
            });
    _exit(0);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ABSL_CHECK_EQ(waitpid(pid, &status, 0), pid);
    ABSL_CHECK_EQ(status, 0);
  }
  const absl::Duration time = absl::FromChrono(SteadyTime::duration(board.end - board.start));
  munmap(&board, sizeof(Board));
  return time;
}

void ConnectByCohort(const RankInfo& info, const std::function<void()>& connected) {
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group = InitProcessGroup(
      {.backend = "gloo", .init_timeout = absl::Minutes(2), .timeout = absl::Minutes(2), .rank_info = info});
  ABSL_CHECK_OK(group.status());
  connected();
  ABSL_CHECK_OK((*group)->Shutdown());
}

void ConnectByLibTorch(const RankInfo& info, const std::function<void()>& connected) {
  const c10::intrusive_ptr<c10d::Backend> gloo = internal::ConnectPlainGloo(info, absl::Minutes(2));
  connected();
}

struct Way {
  const char* name;
  Connect connect;
  std::vector<double> milliseconds;
};

void Run(const std::vector<int>& world_sizes, int num_times) {
  for (const int world_size : world_sizes) {
    std::vector<Way> ways = {{"InitProcessGroup", ConnectByCohort, {}},
                             {"TCPStore, ProcessGroupGloo", ConnectByLibTorch, {}}};
    for (int i = 0; i < num_times; ++i) {
      for (Way& way : ways) way.milliseconds.push_back(absl::ToDoubleMilliseconds(Measure(world_size, way.connect)));
    }
    std::printf("%d ranks, %d times, median (least to most):\n", world_size, num_times);
    for (Way& way : ways) {
      std::ranges::sort(way.milliseconds);
      std::printf("  %-28s %8.1f ms (%.1f to %.1f)\n", way.name, way.milliseconds[way.milliseconds.size() / 2],
                  way.milliseconds.front(), way.milliseconds.back());
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  const bool is_smoke = argc > 1 && std::string_view(argv[1]) == "--smoke";
  cohort::Run(is_smoke ? std::vector<int>{2, 4} : std::vector<int>{2, 8, 32}, is_smoke ? 1 : 15);
  return 0;
}
