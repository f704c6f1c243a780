// File: module_state.h
//
// ModuleState: what a torch::nn module holds, under its own names.

#ifndef COHORT_CHECKPOINT_MODULE_STATE_H_
#define COHORT_CHECKPOINT_MODULE_STATE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include "cohort/checkpoint/torch_file.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace torch::nn {
class Module;  // its header costs 15 s a translation unit
}  // namespace torch::nn

namespace cohort {

// Local. The parameters of `module` and all below it, then the buffers, each under the name that the module gives it,
// letter for letter: "weight", "fc1.bias", "bn.running_mean". Nothing is added or stripped, so a module that wraps
// another one should pass the inner one. What two names share is listed under both.
//
// The tensors are the module's own, not copies: they show what the module holds when they are looked at.
NamedTensors ModuleState(const torch::nn::Module& module);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_MODULE_STATE_H_
