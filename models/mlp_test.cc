#include "cohort/models/mlp.h"

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/Context.h"
#include "ATen/core/grad_mode.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/rand.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> NamesOf(const Mlp& model) {
  std::vector<std::string> names;
  for (const auto& entry : model.named_parameters()) names.push_back(entry.key());
  return names;
}

TEST(MlpTest, ItsStateIsThatOfPythonsSequential) {
  const Mlp model(64, {32, 16}, 10, 0.1);
  EXPECT_THAT(NamesOf(model), ElementsAre("0.weight", "0.bias", "3.weight", "3.bias", "6.weight", "6.bias"));
  EXPECT_THAT(NamesOf(Mlp(64, {32, 16}, 10, 0)),
              ElementsAre("0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"));
  EXPECT_EQ(model.parameters()[0].sizes(), (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(model.parameters()[4].sizes(), (std::vector<int64_t>{10, 16}));
  EXPECT_TRUE(model.named_buffers().is_empty());
}

TEST(MlpTest, WithoutHiddenLayersItIsLinear) {
  EXPECT_THAT(NamesOf(Mlp(3, {}, 2, 0.5)), ElementsAre("0.weight", "0.bias"));
}

TEST(MlpTest, TakesRowsOfAnyShapeAndType) {
  Mlp model(64, {8}, 10, 0);
  EXPECT_EQ(model.forward(at::ones({5, 8, 8}, at::kByte)).sizes(), (std::vector<int64_t>{5, 10}));
  EXPECT_EQ(model.forward(at::ones({0, 64})).sizes(), (std::vector<int64_t>{0, 10}));
}

TEST(MlpTest, NegativeSumsAreCutOffBetweenTheLayers) {
  Mlp model(1, {1}, 1, 0);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model.parameters()) parameter.fill_(parameter.dim() == 2 ? 2 : 0);
  EXPECT_EQ(model.forward(at::ones({1, 1})).item<float>(), 4);
  EXPECT_EQ(model.forward(-at::ones({1, 1})).item<float>(), 0);
}

TEST(MlpTest, DropoutDrawsInTrainingOnly) {
  at::manual_seed(1);
  Mlp model(4, {64}, 3, 0.5);
  const at::NoGradGuard no_grad;
  const at::Tensor rows = at::rand({2, 4});
  EXPECT_FALSE(at::equal(model.forward(rows), model.forward(rows)));
  model.eval();
  EXPECT_TRUE(at::equal(model.forward(rows), model.forward(rows)));
}

}  // namespace
}  // namespace cohort
