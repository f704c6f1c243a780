// What a training step costs on 2 ranks of one thread each, as processes on loopback, all ways interleaved in one run:
//
//   local          no exchange: every rank trains its own model
//   all-reduce     AllReduceMean of all gradients after backward
//   ddp            DistributedDataParallel by default; "views": gradient_as_bucket_view; "static": static_graph as well;
//                  "lasting": not rebuild_buckets
//
// Then how steps grow with the model and the ranks, and what each rank sends in a step, counted at its sockets.
//
//   bazel run -c opt //runtime:distributed_data_parallel_benchmark [-- --smoke]
//
// With --worker, and torchrun's environment, it is one rank that measures what its standard input asks for, a line of
// "MODEL TAB WAY TAB MICRO_BATCHES TAB STEPS" for a line of milliseconds: for tests/python/peers, where Python takes turns.

#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "ATen/Parallel.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/tensor_collectives.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/linear.h"
#include "torch/optim/sgd.h"

namespace cohort {
namespace {

namespace nn = torch::nn;
using internal::Between;
using internal::SteadyNow;
using internal::SteadyTime;

// ---- Models ----

struct Model {
  nn::Sequential net;
  at::Tensor x, y;  // this rank's batch, the same at every step
};

Model MakeLinear(int rank) {
  torch::manual_seed(0);
  nn::Sequential net(nn::Linear(10, 2));
  torch::manual_seed(1 + rank);
  return {net, at::randn({32, 10}), at::randn({32, 2})};
}

// Layers of width x width, with ReLU between.
Model MakeMlp(int rank, int64_t width, int num_layers, int64_t batch) {
  torch::manual_seed(0);
  nn::Sequential net;
  for (int layer = 0; layer < num_layers; ++layer) {
    if (layer > 0) net->push_back(nn::ReLU());
    net->push_back(nn::Linear(width, width));
  }
  torch::manual_seed(1 + rank);
  return {net, at::randn({batch, width}), at::randn({batch, width})};
}

Model MakeModel(std::string_view name, int rank) {
  if (name == "linear") return MakeLinear(rank);
  ABSL_CHECK(name == "mlp") << name;
  return MakeMlp(rank, 1024, 4, 64);
}

// ---- Ways to train ----

constexpr std::string_view kWays[] = {"local", "all-reduce", "ddp", "ddp views", "ddp views static", "ddp lasting"};

DistributedDataParallelOptions OptionsOf(std::string_view way) {
  DistributedDataParallelOptions options;
  options.gradient_as_bucket_view = way.starts_with("ddp views");
  options.static_graph = way == "ddp views static";
  options.rebuild_buckets = way != "ddp lasting";
  return options;
}

class Training {
 public:
  Training(ProcessGroup& group, Model model, std::string_view way)
      : group_(group),
        model_(std::move(model)),
        averages_(way == "all-reduce"),
        optimizer_(model_.net->parameters(), torch::optim::SGDOptions(1e-3)) {
    if (!way.starts_with("ddp")) return;
    ddp_ = DistributedDataParallel<nn::SequentialImpl>::Create(&group, model_.net.ptr(), OptionsOf(way)).value();
  }

  void Step(int num_micro_batches) {
    model_.net->zero_grad();  // the optimizer's does not allow views
    for (int micro = 0; micro < num_micro_batches; ++micro) {
      if (ddp_ != nullptr) {
        const auto no_sync = ddp_->NoSync(micro + 1 < num_micro_batches);
        ABSL_CHECK_OK(ddp_->Backward(at::mse_loss(ddp_->Forward(model_.x).value(), model_.y)));
      } else {
        at::mse_loss(model_.net->forward(model_.x), model_.y).backward();
      }
    }
    if (averages_) {
      std::vector<at::Tensor> gradients;
      for (const at::Tensor& parameter : model_.net->parameters()) gradients.push_back(parameter.grad());
      ABSL_CHECK_OK(AllReduceMean(group_, gradients));
    }
    optimizer_.step();
  }

 private:
  ProcessGroup& group_;
  Model model_;
  const bool averages_;
  torch::optim::SGD optimizer_;
  std::unique_ptr<DistributedDataParallel<nn::SequentialImpl>> ddp_;
};

std::vector<double> MeasureSteps(ProcessGroup& group, Training& training, int num_micro_batches, int num_steps) {
  ABSL_CHECK_OK(group.Barrier());
  std::vector<double> milliseconds;
  for (int step = 0; step < num_steps; ++step) {
    const SteadyTime start = SteadyNow();
    training.Step(num_micro_batches);
    milliseconds.push_back(absl::ToDoubleMilliseconds(Between(start, SteadyNow())));
  }
  return milliseconds;
}

double Percentile(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<size_t>(fraction * values.size()))];
}

// ---- Ranks ----

// Runs `rank_main` in a process for each rank and waits for them.
void RunRanks(int world_size, const std::function<void(ProcessGroup& group)>& rank_main) {
  const int port = internal::ListenAt("127.0.0.1")->port;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t pid = fork();
    ABSL_CHECK_GE(pid, 0) << strerror(errno);
    if (pid > 0) {
      pids.push_back(pid);
      continue;
    }
    at::set_num_threads(1);
    const RankInfo info = {.rank = rank,
                           .world_size = world_size,
                           .local_rank = rank,
                           .has_local_rank = true,
                           .local_world_size = world_size,
                           .master_addr = "127.0.0.1",
                           .master_port = port};
    const auto group = InitProcessGroup({.backend = "gloo", .rank_info = info}).value();
    rank_main(*group);
    ABSL_CHECK_OK(group->Shutdown());
    std::fflush(stdout);
    _exit(0);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    ABSL_CHECK_EQ(waitpid(pid, &status, 0), pid);
    ABSL_CHECK_EQ(status, 0);
  }
}

// What this process has sent through the TCP connections that it has open.
int64_t BytesSent() {
  int64_t sum = 0;
  DIR* directory = opendir("/proc/self/fd");
  ABSL_CHECK(directory != nullptr) << strerror(errno);
  while (const dirent* entry = readdir(directory)) {
    int fd = 0;
    tcp_info info = {};
    socklen_t size = sizeof(info);
    if (!absl::SimpleAtoi(entry->d_name, &fd)) continue;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0) sum += info.tcpi_bytes_sent - info.tcpi_bytes_retrans;
  }
  closedir(directory);
  return sum;
}

// ---- Measurements ----

struct Size {
  int num_blocks = 9;
  int linear_steps = 200, mlp_steps = 10, growth_steps = 9;
  double max_parameters = 1e8;
  int max_ranks = 8;
};

void MeasureWays(const std::string& model, int num_micro_batches, int num_steps, int num_blocks) {
  RunRanks(2, [&](ProcessGroup& group) {
    std::vector<std::unique_ptr<Training>> trainings;
    for (const std::string_view way : kWays) {
      trainings.push_back(std::make_unique<Training>(group, MakeModel(model, group.rank()), way));
    }
    std::map<std::string_view, std::vector<double>> of_blocks;
    for (int block = -1; block < num_blocks; ++block) {
      for (size_t i = 0; i < trainings.size(); ++i) {
        const std::vector<double> times = MeasureSteps(group, *trainings[i], num_micro_batches, num_steps);
        if (block >= 0) of_blocks[kWays[i]].push_back(Percentile(times, 0.5));
      }
    }
    if (!group.is_main()) return;
    std::printf("%s, %d micro-batches, %d blocks of %d steps: median of the blocks' p50 (least to most)\n",
                model.c_str(), num_micro_batches, num_blocks, num_steps);
    for (const std::string_view way : kWays) {
      const std::vector<double>& all = of_blocks[way];
      const double median = Percentile(all, 0.5);
      std::printf("  %-18s %8.3f ms (%.3f to %.3f)  exchange %7.3f ms\n", std::string(way).c_str(), median,
                  Percentile(all, 0), Percentile(all, 1), median - Percentile(of_blocks["local"], 0.5));
    }
  });
}

void MeasureGrowth(double num_parameters, int world_size, int num_steps) {
  constexpr int kLayers = 4;
  const auto width = static_cast<int64_t>(std::lround(std::sqrt(num_parameters / kLayers)));
  RunRanks(world_size, [&](ProcessGroup& group) {
    double medians[2] = {};
    int64_t bytes = 0;
    const std::pair<const char*, double*> ways[] = {{"local", &medians[0]}, {"ddp views", &medians[1]}};
    for (const auto& [way, median] : ways) {
      Training training(group, MakeMlp(group.rank(), width, kLayers, 16), way);
      MeasureSteps(group, training, 1, 2);
      const std::vector<double> times = MeasureSteps(group, training, 1, num_steps);
      *median = Percentile(times, 0.5);
      if (std::string_view(way) == "local") continue;
      const int64_t before = BytesSent();
      training.Step(1);
      bytes = BytesSent() - before;
    }
    if (!group.is_main()) return;
    const int64_t gradients = 4 * kLayers * (width * width + width);
    std::printf(
        "  %9.0e parameters, %d ranks: local %9.2f ms, ddp %9.2f ms (%.2fx), sent by rank 0 %11lld bytes (%.3f of the "
        "gradients)\n",
        num_parameters, world_size, medians[0], medians[1], medians[1] / medians[0], static_cast<long long>(bytes),
        static_cast<double>(bytes) / gradients);
  });
}

void Run(const Size& size) {
  for (const int num_micro_batches : {1, 4}) {
    MeasureWays("linear", num_micro_batches, size.linear_steps / num_micro_batches, size.num_blocks);
    MeasureWays("mlp", num_micro_batches, std::max(1, size.mlp_steps / num_micro_batches), size.num_blocks);
  }
  std::printf("growth: median of %d steps, 4 layers, batch 16\n", size.growth_steps);
  std::fflush(stdout);
  for (double num_parameters = 1e4; num_parameters <= size.max_parameters; num_parameters *= 10) {
    for (int world_size = 1; world_size <= size.max_ranks; world_size *= 2) {
      MeasureGrowth(num_parameters, world_size, size.growth_steps);
    }
  }
}

void Work() {
  at::set_num_threads(1);
  const auto group = InitProcessGroup({.backend = "gloo"}).value();
  std::map<std::pair<std::string, std::string>, std::unique_ptr<Training>> trainings;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, '\t');
    int num_micro_batches = 0, num_steps = 0;
    ABSL_CHECK(words.size() == 4 && absl::SimpleAtoi(words[2], &num_micro_batches) &&
               absl::SimpleAtoi(words[3], &num_steps))
        << line;
    auto& training = trainings[{words[0], words[1]}];
    if (training == nullptr)
      training = std::make_unique<Training>(*group, MakeModel(words[0], group->rank()), words[1]);
    const std::vector<double> times = MeasureSteps(*group, *training, num_micro_batches, num_steps);
    std::printf("%s\n", absl::StrJoin(times, " ").c_str());
    std::fflush(stdout);
  }
  trainings.clear();
  ABSL_CHECK_OK(group->Shutdown());
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  const std::string_view flag = argc > 1 ? argv[1] : "";
  if (flag == "--worker") {
    cohort::Work();
    return 0;
  }
  cohort::Size size;
  if (flag == "--smoke") {
    size = {
        .num_blocks = 1, .linear_steps = 4, .mlp_steps = 1, .growth_steps = 1, .max_parameters = 1e5, .max_ranks = 2};
  }
  cohort::Run(size);
  return 0;
}
