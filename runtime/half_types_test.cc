// Collective: every TEST body runs on every rank.

#include <memory>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/tensor_collectives.h"
#include "cohort/tests/harness/shared_group.h"
#include "gtest/gtest.h"
#include "torch/nn/modules/linear.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using cohort::testing::SharedGroup;

TEST(HalfTypesTest, AreSummed) {
  for (at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const std::vector<at::Tensor> tensors = {at::full({5}, SharedGroup().rank() + 1.0, type)};
    ASSERT_THAT(AllReduceSum(SharedGroup(), tensors), IsOk()) << type;
    const double sum = SharedGroup().world_size() * (SharedGroup().world_size() + 1) / 2.0;
    EXPECT_TRUE(tensors[0].equal(at::full({5}, sum, type))) << tensors[0];
  }
}

// As the oracle the same gradients, averaged in full precision.
TEST(HalfTypesTest, GradientsTravelInThem) {
  for (const auto& [compression, tolerance] :
       {std::pair(GradientCompression::kHalf, 2e-3), std::pair(GradientCompression::kBFloat16, 2e-2)}) {
    at::manual_seed(1);
    const auto model = std::make_shared<torch::nn::LinearImpl>(10, 3);
    at::manual_seed(2 + SharedGroup().rank());
    const at::Tensor x = at::randn({8, 10});
    auto ddp =
        DistributedDataParallel<torch::nn::LinearImpl>::Create(&SharedGroup(), model, {.compression = compression});
    ASSERT_THAT(ddp, IsOk());
    const absl::StatusOr<at::Tensor> output = (*ddp)->Forward(x);
    ASSERT_THAT(output, IsOk());
    ASSERT_THAT((*ddp)->Backward(output->square().mean()), IsOk());
    const at::Tensor compressed = model->weight.grad().clone();

    model->zero_grad();
    model->forward(x).square().mean().backward();
    const at::Tensor mean = model->weight.grad().clone();
    ASSERT_THAT(AllReduceMean(SharedGroup(), {mean}), IsOk());
    EXPECT_TRUE(at::allclose(compressed, mean, tolerance, tolerance)) << (compressed - mean).abs().max();
    if (SharedGroup().world_size() > 1) {
      EXPECT_FALSE(compressed.equal(mean)) << "nothing was compressed";
    }
  }
}

}  // namespace
}  // namespace cohort
