#include "cohort/checkpoint/module_state.h"

#include <memory>
#include <string>
#include <vector>

#include "ATen/ops/ones.h"
#include "ATen/ops/zeros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;

struct Layer : torch::nn::Module {
  Layer() {
    weight = register_parameter("weight", at::ones({2}));
    register_parameter("bias", at::Tensor(), /*requires_grad=*/false);  // a layer without one
    mean = register_buffer("running_mean", at::zeros({1}));
  }
  at::Tensor weight, mean;
};

struct Wrapper : torch::nn::Module {
  Wrapper() {
    module = register_module("module", std::make_shared<Layer>());
    register_module("same", module);
    scale = register_parameter("scale", at::ones({}));
  }
  std::shared_ptr<Layer> module;
  at::Tensor scale;
};

std::vector<std::string> NamesOf(const NamedTensors& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state) names.push_back(name);
  return names;
}

TEST(ModuleStateTest, ListsParametersThenBuffersUnderTheModulesOwnNames) {
  EXPECT_THAT(NamesOf(ModuleState(Layer())), ElementsAre("weight", "running_mean"));
}

TEST(ModuleStateTest, StripsNothingFromTheNamesOfAWrapper) {
  const Wrapper wrapper;
  EXPECT_THAT(NamesOf(ModuleState(wrapper)),
              ElementsAre("scale", "module.weight", "same.weight", "module.running_mean", "same.running_mean"));
  EXPECT_THAT(NamesOf(ModuleState(*wrapper.module)), ElementsAre("weight", "running_mean"));
}

TEST(ModuleStateTest, HandsOutTheModulesOwnTensors) {
  const Layer layer;
  const NamedTensors state = ModuleState(layer);
  EXPECT_TRUE(state[0].second.is_same(layer.weight));
  EXPECT_TRUE(state[1].second.is_same(layer.mean));
}

}  // namespace
}  // namespace cohort
