// File: linear.h
//
// Linear: y = x W^T + b, the model of linear regression.

#ifndef COHORT_MODELS_LINEAR_H_
#define COHORT_MODELS_LINEAR_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>

#include "cohort/third_party/libtorch/string_abi.h"
#include "torch/nn/modules/linear.h"

namespace cohort {

// Takes [rows, features] to [rows, outputs]. It is a torch::nn::Linear and does not hold one: so its state is named
// "weight" and "bias", as Python's torch.nn.Linear names it, and not "linear.weight". Parameters start as PyTorch
// starts them, from the global random generator.
class Linear final : public torch::nn::LinearImpl {
 public:
  // Both at least 1.
  Linear(int64_t features, int64_t outputs) : torch::nn::LinearImpl(features, outputs) {}
};

}  // namespace cohort

#endif  // COHORT_MODELS_LINEAR_H_
