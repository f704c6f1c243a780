// File: mlp.h
//
// Mlp: a multilayer perceptron, the model of a simple classifier.

#ifndef COHORT_MODELS_MLP_H_
#define COHORT_MODELS_MLP_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <vector>

#include "ATen/core/Tensor.h"
#include "cohort/third_party/libtorch/string_abi.h"
#include "torch/nn/modules/activation.h"
#include "torch/nn/modules/container/sequential.h"
#include "torch/nn/modules/dropout.h"
#include "torch/nn/modules/linear.h"

namespace cohort {

// Takes [rows, anything] numbers of any type, `features` of them a row, to [rows, outputs] floats. It is a
// torch::nn::Sequential, with the state of Python's
//
//   torch.nn.Sequential(Linear(features, hidden[0]), ReLU(), Dropout(p), ..., Linear(hidden[-1], outputs))
//
// without what is in front of it and without the Dropouts if `dropout` is 0. Parameters start as PyTorch starts them,
// and Dropout draws, from the global random generator.
class Mlp final : public torch::nn::SequentialImpl {
 public:
  // Sizes at least 1; `hidden` may be empty; dropout at least 0, below 1.
  Mlp(int64_t features, const std::vector<int64_t>& hidden, int64_t outputs, double dropout) {
    int64_t width = features;
    for (const int64_t size : hidden) {
      push_back(torch::nn::Linear(width, size));
      push_back(torch::nn::ReLU());
      if (dropout > 0) push_back(torch::nn::Dropout(dropout));
      width = size;
    }
    push_back(torch::nn::Linear(width, outputs));
  }

  at::Tensor forward(const at::Tensor& rows) { return SequentialImpl::forward(rows.flatten(1).to(at::kFloat)); }
};

}  // namespace cohort

#endif  // COHORT_MODELS_MLP_H_
