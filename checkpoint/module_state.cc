#include "cohort/checkpoint/module_state.h"

#include "cohort/checkpoint/torch_file.h"
#include "torch/nn/module.h"

namespace cohort {

NamedTensors ModuleState(const torch::nn::Module& module) {
  NamedTensors state;
  for (const auto& parameter : module.named_parameters()) state.emplace_back(parameter.key(), parameter.value());
  for (const auto& buffer : module.named_buffers()) state.emplace_back(buffer.key(), buffer.value());
  return state;
}

}  // namespace cohort
