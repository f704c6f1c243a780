// File: trained_model.h
//
// TrainedModel: a model that all ranks train together, whatever its class: DistributedDataParallel behind an interface.

#ifndef COHORT_TRAINERS_TRAINED_MODEL_H_
#define COHORT_TRAINERS_TRAINED_MODEL_H_

#include <memory>
#include <utility>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/distributed_data_parallel.h"
#include "cohort/runtime/process_group.h"
#include "torch/nn/module.h"

namespace cohort {

class TrainedModel {
 public:
  // Of the outputs for some rows: a scalar that can be differentiated.
  using Loss = absl::FunctionRef<absl::StatusOr<at::Tensor>(const at::Tensor& output)>;

  virtual ~TrainedModel() = default;

  // Adds the gradients of `loss` for `features`, perhaps of no rows, to what the parameters have. Collective if
  // `is_last`: then they have the mean, over all ranks, of all that was added since they had none. Otherwise it is
  // local.
  //
  // Errors: those of DistributedDataParallel. One of `loss` poisons the group as those do: every rank gets it, as "rank
  // K: TEXT".
  virtual absl::Status AddGradients(const at::Tensor& features, Loss loss, bool is_last) = 0;

  // Local. What the model makes of `features` now; throws what it throws.
  virtual at::Tensor Evaluate(const at::Tensor& features) = 0;

  virtual torch::nn::Module& module() = 0;
};

namespace internal {

template <typename Module>
class TrainedModelOf final : public TrainedModel {
 public:
  TrainedModelOf(ProcessGroup* group, std::unique_ptr<DistributedDataParallel<Module>> parallel)
      : group_(*group), parallel_(std::move(parallel)) {}

  absl::Status AddGradients(const at::Tensor& features, Loss loss, bool is_last) override {
    const auto no_sync = parallel_->NoSync(!is_last);
    ABSL_ASSIGN_OR_RETURN(const at::Tensor output, parallel_->Forward(features));
    const absl::StatusOr<at::Tensor> mine = loss(output);
    if (!mine.ok()) return group_.Abort(mine.status());
    return parallel_->Backward(*mine);
  }

  at::Tensor Evaluate(const at::Tensor& features) override { return parallel_->module()->forward(features); }

  torch::nn::Module& module() override { return *parallel_->module(); }

 private:
  ProcessGroup& group_;
  const std::unique_ptr<DistributedDataParallel<Module>> parallel_;
};

}  // namespace internal

// Collective. `Module` is a torch::nn::Module whose forward takes a tensor and returns one. `group` must outlive the
// model. Errors: those of DistributedDataParallel::Create.
template <typename Module>
absl::StatusOr<std::unique_ptr<TrainedModel>> TrainOnAllRanks(ProcessGroup* group, std::shared_ptr<Module> module) {
  // So that a resumed run adds up in the order of the unbroken one, also in its first step.
  const DistributedDataParallelOptions options{.rebuild_buckets = false};
  ABSL_ASSIGN_OR_RETURN(auto parallel, DistributedDataParallel<Module>::Create(group, std::move(module), options));
  return std::make_unique<internal::TrainedModelOf<Module>>(group, std::move(parallel));
}

}  // namespace cohort

#endif  // COHORT_TRAINERS_TRAINED_MODEL_H_
