// A rank that dies, freezes or fails in the middle of backward. Every survivor names it, long before the deadline unless
// the deadline is all there is.

#include <csignal>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/faults/forked_job.h"
#include "cohort/tests/faults/small_disk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"

namespace cohort {
namespace {

using ::cohort::testing::ForkedJob;
using ::cohort::testing::FreshDirectoryInMemory;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kRanks = 3;
constexpr int kLayers = 3;

// What is done in backward, when the gradient of layer `layer` comes in step `step`.
using InBackward = std::function<void(int step, int layer)>;

// Trains until something fails. Gradients of several megabytes in several buckets: some are on their way at any time.
// `looks_ahead`: a local Forward lies between each Forward and its Backward.
absl::Status TrainForEver(ProcessGroup& group, const InBackward& in_backward, bool looks_ahead = false) {
  at::set_num_threads(1);
  torch::nn::Sequential net;
  for (int layer = 0; layer < kLayers; ++layer) net->push_back(torch::nn::Linear(512, 512));
  auto ddp = DistributedDataParallel<torch::nn::SequentialImpl>::Create(&group, net.ptr(), {.bucket_bytes = 1 << 20});
  if (!ddp.ok()) return ddp.status();
  int step = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    net[layer]->as<torch::nn::Linear>()->weight.register_hook([&, layer](const at::Tensor& gradient) {
      in_backward(step, layer);
      return gradient;
    });
  }
  for (;; ++step) {
    net->zero_grad();
    auto output = (*ddp)->Forward(at::ones({2, 512}));
    if (!output.ok()) return output.status();
    if (looks_ahead) {
      const auto no_sync = (*ddp)->NoSync();
      if (absl::Status status = (*ddp)->Forward(at::ones({1, 512})).status(); !status.ok()) return status;
    }
    if (absl::Status status = (*ddp)->Backward(output->sum()); !status.ok()) return status;
  }
}

class KilledBackwardTest : public ::testing::TestWithParam<int> {
 protected:
  static void SetUpTestSuite() { at::set_num_threads(1); }  // LibTorch's other threads would be missing in the forks

  int victim() const { return GetParam(); }
  std::string Victim() const { return absl::StrCat("rank ", victim()); }

  // The ends of the ranks that do not have it coming.
  std::vector<std::string> Survivors(ForkedJob& job) const {
    std::vector<std::string> ends;
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank != victim()) ends.push_back(job.Wait(rank));
    }
    return ends;
  }
};

TEST_P(KilledBackwardTest, ADeathAtAnyGradientIsNamedByEverySurvivor) {
  for (int layer = 0; layer < kLayers; ++layer) {
    ForkedJob job(
        [&](ProcessGroup& group, const std::vector<pid_t>&) {
          return TrainForEver(group, [&](int step, int at) {
            if (group.rank() == victim() && step == 2 && at == layer) raise(SIGKILL);
          });
        },
        kRanks, absl::Minutes(10));
    for (const std::string& end : Survivors(job))
      EXPECT_THAT(end, AllOf(StartsWith("UNAVAILABLE"), HasSubstr(Victim())));
    EXPECT_EQ(job.Wait(victim()), "killed");
  }
}

TEST_P(KilledBackwardTest, ADeathAtARandomMomentIsNamedByEverySurvivor) {
  std::mt19937 random(victim());
  for (int i = 0; i < 15; ++i) {
    const std::string mark = FreshDirectoryInMemory() + "/training";
    ForkedJob job(
        [&](ProcessGroup& group, const std::vector<pid_t>&) {
          return TrainForEver(group, [&](int step, int) {
            if (group.rank() == victim() && step == 1) WriteFile(mark, "");
          });
        },
        kRanks, absl::Minutes(10));
    while (!std::filesystem::exists(mark)) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Microseconds(std::uniform_int_distribution<int>(0, 30'000)(random)));
    kill(job.pid(victim()), SIGKILL);
    for (const std::string& end : Survivors(job))
      EXPECT_THAT(end, AllOf(StartsWith("UNAVAILABLE"), HasSubstr(Victim())));
    EXPECT_EQ(job.Wait(victim()), "killed");
  }
}

TEST_P(KilledBackwardTest, AFreezeIsNamedAtTheDeadline) {
  for (const bool looks_ahead : {false, true}) {
    ForkedJob job(
        [&](ProcessGroup& group, const std::vector<pid_t>&) {
          const auto freeze = [&](int step, int layer) {
            if (group.rank() == victim() && step == 2 && layer == 1) raise(SIGSTOP);
          };
          return TrainForEver(group, freeze, looks_ahead);
        },
        kRanks, absl::Seconds(3));
    for (const std::string& end : Survivors(job)) {
      EXPECT_THAT(end, AllOf(StartsWith("DEADLINE_EXCEEDED"), HasSubstr(victim() == 0 ? "rank 0" : Victim())));
    }
  }
}

TEST_P(KilledBackwardTest, AnExceptionInBackwardIsEveryRanksError) {
  ForkedJob job(
      [&](ProcessGroup& group, const std::vector<pid_t>&) {
        return TrainForEver(group, [&](int step, int layer) {
          if (group.rank() == victim() && step == 2 && layer == 1) TORCH_CHECK_VALUE(false, "row 7 is broken");
        });
      },
      kRanks, absl::Minutes(10));
  for (const std::string& end : job.Wait()) {
    EXPECT_THAT(end, AllOf(StartsWith("INVALID_ARGUMENT"), HasSubstr(Victim() + ": "), HasSubstr("row 7 is broken")));
  }
}

INSTANTIATE_TEST_SUITE_P(, KilledBackwardTest, ::testing::Range(0, kRanks),
                         [](const auto& info) { return absl::StrCat("Rank", info.param); });

}  // namespace
}  // namespace cohort
