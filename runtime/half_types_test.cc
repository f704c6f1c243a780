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

struct ScaleImpl : torch::nn::Module {
  explicit ScaleImpl(at::ScalarType type) { weight = register_parameter("weight", at::ones({2}, type)); }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor sum = (weight * x).sum();
    return sum.is_complex() ? at::real(sum) : sum;
  }
  at::Tensor weight;
};

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

TEST(HalfTypesTest, GradientsOfOtherTypesTravelInThemToo) {
  if (SharedGroup().world_size() == 1) return;  // nothing travels
  for (const at::ScalarType type : {at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
    const auto model = std::make_shared<ScaleImpl>(type);
    auto ddp =
        DistributedDataParallel<ScaleImpl>::Create(&SharedGroup(), model, {.compression = GradientCompression::kHalf});
    ASSERT_THAT(ddp, IsOk()) << type;
    const auto gradient_of = [&](double x) {
      model->zero_grad();
      const absl::StatusOr<at::Tensor> output = (*ddp)->Forward(at::full({2}, x));
      EXPECT_THAT(output, IsOk()) << type;
      if (output.ok()) {
        EXPECT_THAT((*ddp)->Backward(*output), IsOk()) << type;
      }
      return model->weight.grad();
    };
    const at::Tensor mean = gradient_of(SharedGroup().rank());
    EXPECT_TRUE(mean.equal(at::full({2}, (SharedGroup().world_size() - 1) / 2.0, type))) << mean;
    if (type != at::kHalf) {
      EXPECT_TRUE(gradient_of(1e6).isinf().all().item<bool>()) << "beyond what a Half holds";
    }
  }
}

}  // namespace
}  // namespace cohort
