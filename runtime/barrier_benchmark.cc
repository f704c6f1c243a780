// How long the ranks of one machine take to meet each other, as processes on loopback, all ways interleaved in one run:
//
//   ProcessGroup::Barrier          limit: 1.1 times the next line on 2 ranks
//   ProcessGroupGloo::barrier      LibTorch's own, through the same connections
//   ProcessGroup::Agree            aim: the next line
//   c10d store barrier             torch elastic's, through a TCPStore
//
// and how long until every rank knows that rank 0 brought an error (limit: 0.1 s) and that a rank was killed (1 s).
//
//   bazel run -c opt //runtime:barrier_benchmark [-- --smoke]

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/testing/serve_tcp_store.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace cohort {
namespace {

using internal::Between;
using internal::SteadyNow;
using internal::SteadyTime;

constexpr int kMaxRanks = 8;

struct Size {
  int num_blocks = 15;
  int rounds_per_block = 200;
  int num_errors = 20;
  int num_deaths = 5;
};

// Shared by all ranks: the steady clock is the machine's, so times of different processes can be compared.
struct Board {
  std::atomic<SteadyTime::rep> start;
  std::atomic<SteadyTime::rep> known[kMaxRanks];
  std::atomic<int> num_waiting;
  std::atomic<int> store_port;
};

Board* NewBoard() {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ABSL_CHECK(memory != MAP_FAILED) << strerror(errno);
  return new (memory) Board();
}

void Note(std::atomic<SteadyTime::rep>& place) { place = SteadyNow().time_since_epoch().count(); }

absl::Duration LastToKnow(const Board& board, int num_ranks) {
  SteadyTime::rep last = 0;
  for (int rank = 0; rank < num_ranks; ++rank) last = std::max(last, board.known[rank].load());
  return absl::FromChrono(SteadyTime::duration(last - board.start));
}

// A port of loopback that is free now. Nobody else on this machine is in a hurry to take it.
int FreePort() { return internal::ListenAt("127.0.0.1")->port; }

// Runs `rank_main` in a process for each rank and waits for them. The last one may be killed.
void RunRanks(int world_size, const std::function<void(int rank, ProcessGroup& group)>& rank_main) {
  const int port = FreePort();
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    ABSL_CHECK_GE(pid, 0) << strerror(errno);
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    const RankInfo info = {.rank = rank,
                           .world_size = world_size,
                           .local_rank = rank,
                           .has_local_rank = true,
                           .local_world_size = world_size,
                           .master_addr = "127.0.0.1",
                           .master_port = port};
    absl::StatusOr<std::unique_ptr<ProcessGroup>> group = InitProcessGroup(
        {.backend = "gloo", .init_timeout = absl::Minutes(1), .timeout = absl::Minutes(1), .rank_info = info});
    ABSL_CHECK_OK(group.status());
    rank_main(rank, **group);
    const absl::Status left = (*group)->Shutdown();
    ABSL_CHECK_OK(left);
    group->reset();
    _exit(0);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ABSL_CHECK_EQ(waitpid(pid, &status, 0), pid);
    ABSL_CHECK(status == 0 || (pid == pids.back() && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
  }
}

struct Way {
  std::string name;
  std::function<void()> barrier;
  std::vector<absl::Duration> all;
  std::vector<absl::Duration> block_p50s;
};

absl::Duration Percentile(std::vector<absl::Duration> times, double fraction) {
  std::ranges::sort(times);
  return times[std::min(times.size() - 1, static_cast<size_t>(fraction * times.size()))];
}

void Print(const Way& way, absl::Duration reference) {
  const absl::Duration p50 = Percentile(way.block_p50s, 0.5);
  std::printf("  %-28s p50 %7.1f us (%.1f to %.1f)  p99 %8.1f us  %.2fx\n", way.name.c_str(),
              absl::ToDoubleMicroseconds(p50), absl::ToDoubleMicroseconds(Percentile(way.block_p50s, 0)),
              absl::ToDoubleMicroseconds(Percentile(way.block_p50s, 1)),
              absl::ToDoubleMicroseconds(Percentile(way.all, 0.99)), absl::FDivDuration(p50, reference));
}

c10::intrusive_ptr<c10d::TCPStore> OpenStore(int rank, Board& board, ProcessGroup& group) {
  c10d::TCPStoreOptions options;
  options.waitWorkers = false;
  c10::intrusive_ptr<c10d::TCPStore> store;
  if (rank == 0) {
    store = testing::ServeTcpStore();
    board.store_port = store->getPort();
  }
  ABSL_CHECK_OK(group.Barrier());
  if (rank != 0) {
    options.port = board.store_port;
    options.useLibUV = false;  // it makes no difference to a client
    store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  return store;
}

void MeasureWays(int world_size, const Size& size) {
  Board& board = *NewBoard();
  RunRanks(world_size, [&](int rank, ProcessGroup& group) {
    c10d::Backend& gloo = static_cast<internal::TorchBackend*>(group.backend())->torch_backend();
    const c10::intrusive_ptr<c10d::TCPStore> store = OpenStore(rank, board, group);
    int num_store_barriers = 0;
    std::vector<Way> ways = {
        {"ProcessGroup::Barrier", [&] { ABSL_CHECK_OK(group.Barrier()); }},
        {"ProcessGroupGloo::barrier", [&] { gloo.barrier()->wait(); }},
        {"ProcessGroup::Agree", [&] { ABSL_CHECK_OK(group.Agree("round", absl::OkStatus())); }},
        {"c10d store barrier",
         [&] { store->barrier(absl::StrCat("round", num_store_barriers++), world_size, std::chrono::minutes(1)); }},
    };
    for (int block = 0; block < size.num_blocks; ++block) {
      for (Way& way : ways) {
        std::vector<absl::Duration> times;
        for (int round = 0; round < size.rounds_per_block; ++round) {
          const SteadyTime start = SteadyNow();
          way.barrier();
          times.push_back(Between(start, SteadyNow()));
        }
        way.block_p50s.push_back(Percentile(times, 0.5));
        way.all.insert(way.all.end(), times.begin(), times.end());
      }
    }
    if (rank != 0) return;
    std::printf("%d ranks, %d blocks of %d, median of the blocks' p50 (least to most):\n", world_size, size.num_blocks,
                size.rounds_per_block);
    for (const Way& way : ways) Print(way, Percentile(ways[1].block_p50s, 0.5));
    std::fflush(stdout);
  });
}

void PrintNews(std::string_view what, int world_size, const std::vector<absl::Duration>& times) {
  std::printf("%d ranks, until all know of %s: median %.2f ms, at most %.2f ms (%zu times)\n", world_size,
              std::string(what).c_str(), absl::ToDoubleMilliseconds(Percentile(times, 0.5)),
              absl::ToDoubleMilliseconds(Percentile(times, 1)), times.size());
  std::fflush(stdout);
}

void MeasureErrors(int world_size, const Size& size) {
  Board& board = *NewBoard();
  RunRanks(world_size, [&](int rank, ProcessGroup& group) {
    std::vector<absl::Duration> times;
    for (int i = 0; i < size.num_errors; ++i) {
      ABSL_CHECK_OK(group.Barrier());
      if (rank == 0) Note(board.start);
      const absl::Status status = group.Agree("x", rank == 0 ? absl::DataLossError("disk full") : absl::OkStatus());
      Note(board.known[rank]);
      ABSL_CHECK(absl::IsDataLoss(status)) << status;
      ABSL_CHECK_OK(group.Barrier());
      times.push_back(LastToKnow(board, world_size));
    }
    if (rank == 0) PrintNews("an error on rank 0", world_size, times);
  });
}

void MeasureDeaths(int world_size, const Size& size) {
  std::vector<absl::Duration> times;
  for (int i = 0; i < size.num_deaths; ++i) {
    Board& board = *NewBoard();
    RunRanks(world_size, [&](int rank, ProcessGroup& group) {
      ABSL_CHECK_OK(group.Barrier());
      if (rank == world_size - 1) {
        while (board.num_waiting < world_size - 1) usleep(100);
        usleep(10000);  // by now the others wait in the barrier; if one does not, its time is the shorter
        Note(board.start);
        raise(SIGKILL);
      }
      ++board.num_waiting;
      const absl::Status status = group.Barrier();
      Note(board.known[rank]);
      ABSL_CHECK(absl::IsUnavailable(status)) << status;
    });
    times.push_back(LastToKnow(board, world_size - 1));
  }
  PrintNews("a killed rank", world_size, times);
}

void Run(const Size& size) {
  for (int world_size : {2, 4}) {
    MeasureWays(world_size, size);
    MeasureErrors(world_size, size);
    MeasureDeaths(world_size, size);
  }
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  cohort::Size size;
  if (argc > 1 && std::string_view(argv[1]) == "--smoke") {
    size = {.num_blocks = 1, .rounds_per_block = 2, .num_errors = 1, .num_deaths = 1};
  }
  cohort::Run(size);
  return 0;
}
