#include "cohort/trainers/make_optimizer.h"

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "torch/optim/adagrad.h"
#include "torch/optim/adam.h"
#include "torch/optim/adamw.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/rmsprop.h"
#include "torch/optim/sgd.h"

namespace cohort {

namespace optim = torch::optim;

absl::StatusOr<std::unique_ptr<optim::Optimizer>> MakeOptimizer(std::string_view name,
                                                                std::vector<at::Tensor> parameters,
                                                                const OptimizerSettings& settings) {
  const double rate = settings.learning_rate;
  if (name == "sgd") {
    return std::make_unique<optim::SGD>(std::move(parameters), optim::SGDOptions(rate).momentum(settings.momentum));
  }
  if (name == "adam") return std::make_unique<optim::Adam>(std::move(parameters), optim::AdamOptions(rate));
  if (name == "adamw") {
    return std::make_unique<optim::AdamW>(std::move(parameters),
                                          optim::AdamWOptions(rate).weight_decay(settings.weight_decay));
  }
  if (name == "rmsprop") {
    return std::make_unique<optim::RMSprop>(std::move(parameters),
                                            optim::RMSpropOptions(rate).momentum(settings.momentum));
  }
  if (name == "adagrad") return std::make_unique<optim::Adagrad>(std::move(parameters), optim::AdagradOptions(rate));
  return absl::InvalidArgumentError(absl::StrCat("optimizer=", name, ": must be sgd, adam, adamw, rmsprop or adagrad"));
}

void SetMomentum(optim::Optimizer& optimizer, double momentum) {
  for (auto& group : optimizer.param_groups()) {
    if (auto* sgd = dynamic_cast<optim::SGDOptions*>(&group.options())) sgd->momentum(momentum);
    if (auto* rmsprop = dynamic_cast<optim::RMSpropOptions*>(&group.options())) rmsprop->momentum(momentum);
  }
}

}  // namespace cohort
