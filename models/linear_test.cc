#include "cohort/models/linear.h"

#include <string>
#include <vector>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/ones.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(LinearTest, ItsStateIsThatOfPythonsLinear) {
  const Linear model(10, 1);
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters()) names.push_back(entry.key());
  EXPECT_EQ(names, (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(model.weight.sizes(), (std::vector<int64_t>{1, 10}));
  EXPECT_EQ(model.bias.sizes(), (std::vector<int64_t>{1}));
  EXPECT_EQ(model.weight.scalar_type(), at::kFloat);
  EXPECT_TRUE(model.named_buffers().is_empty());
}

TEST(LinearTest, AddsTheBiasToTheWeightedSum) {
  Linear model(3, 2);
  {
    at::NoGradGuard no_grad;
    model.weight.fill_(2);
    model.bias[1] = 5;
    model.bias[0] = 1;
  }
  const at::Tensor y = model.forward(at::ones({4, 3}));
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(y[3][0].item<float>(), 7);
  EXPECT_EQ(y[0][1].item<float>(), 11);
}

}  // namespace
}  // namespace cohort
