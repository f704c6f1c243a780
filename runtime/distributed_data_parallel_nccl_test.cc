// Data-parallel training over nccl: two ranks, each with a GPU of its own. Skipped, and counted as such, without.

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/runtime/testing/gpus.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/torch.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using absl_testing::StatusIs;
using ::cohort::testing::DevicesWithContext;
using ::cohort::testing::NumGpus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DistributedDataParallelNcclTest, GradientsAreTheMeanOfTheRanksOnEachRanksOwnDevice) {
  if (NumGpus() < 2) GTEST_SKIP() << "no 2 GPUs in a build with nccl";
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group =
      InitProcessGroup({.backend = "nccl", .init_timeout = absl::Seconds(30), .timeout = absl::Seconds(30)});
  ASSERT_THAT(group, IsOk());
  const c10::Device device = TensorDevice(**group);
  torch::nn::Linear on_cpu(3, 2);
  EXPECT_THAT(DistributedDataParallel<torch::nn::LinearImpl>::Create(group->get(), on_cpu.ptr()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is on cpu and must be on cuda:")));

  torch::manual_seed((*group)->rank());
  torch::nn::Linear net(3, 2);
  net->to(device);
  auto ddp = DistributedDataParallel<torch::nn::LinearImpl>::Create(group->get(), net.ptr(),
                                                                    {.gradient_as_bucket_view = true});
  ASSERT_THAT(ddp, IsOk());
  for (int step = 0; step < 3; ++step) {
    net->zero_grad();
    auto output = (*ddp)->Forward(at::full({1, 3}, (*group)->rank() + 1.0, device));
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT((*ddp)->Backward(output->sum()), IsOk());
    EXPECT_TRUE(at::allclose(net->weight.grad().cpu(), at::full({2, 3}, 1.5)));
  }
  EXPECT_THAT(DevicesWithContext(), ElementsAre(device.index()));
  EXPECT_THAT((*group)->Shutdown(), IsOk());
}

}  // namespace
}  // namespace cohort
