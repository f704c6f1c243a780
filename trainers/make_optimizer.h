// File: make_optimizer.h
//
// MakeOptimizer: an optimizer by the name that a person typed.

#ifndef COHORT_TRAINERS_MAKE_OPTIMIZER_H_
#define COHORT_TRAINERS_MAKE_OPTIMIZER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort {

struct OptimizerSettings {
  double learning_rate;
  double momentum = 0;      // of sgd and rmsprop; means nothing to the others
  double weight_decay = 0;  // of adamw; means nothing to the others
};

// Local. "sgd", "adam", "adamw", "rmsprop" or "adagrad"; every other option has LibTorch's default. Throws what LibTorch
// throws.
//
// Errors: InvalidArgument if `name` is another one.
absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(std::string_view name,
                                                                       std::vector<at::Tensor> parameters,
                                                                       const OptimizerSettings& settings);

// Local. Sets the momentum of an sgd or rmsprop, of all its groups; does nothing to another one.
void SetMomentum(torch::optim::Optimizer& optimizer, double momentum);

}  // namespace cohort

#endif  // COHORT_TRAINERS_MAKE_OPTIMIZER_H_
