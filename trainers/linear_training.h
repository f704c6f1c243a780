// File: linear_training.h
//
// LinearTraining: the model on this rank, what trains it, and how far it is. Knows no directory and no plan of saves.

#ifndef COHORT_TRAINERS_LINEAR_TRAINING_H_
#define COHORT_TRAINERS_LINEAR_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/models/linear.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/linear_trainer_options.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/run_settings.h"
#include "torch/optim/optimizer.h"

namespace cohort {

class LinearTraining {
 public:
  // All must outlive the object.
  LinearTraining(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options);

  // Collective. Makes the model as it is before the first step, and everything else. Before all that follows.
  absl::Status Begin();

  // Collective. Goes on from a state file. Returns what is not as it was saved, for people: "batch_size 32, was 64". If
  // it fails nothing is changed, as LoadTrainingState says. Errors: those of LoadTrainingState, ReadRunState,
  // CheckCanGoOn.
  absl::StatusOr<std::vector<std::string>> Load(std::string_view path);

  // ---- Local: where it is ----

  int64_t steps_done() const { return steps_done_; }
  int64_t epochs_done() const { return epochs_done_; }
  int64_t rows_done() const { return position_.rows_done; }  // of the epoch that has begun
  bool is_at_end_of_epoch() const { return position_.rows_done == data_.num_rows; }
  double learning_rate() const { return optimizer_->param_groups()[0].options().get_lr(); }
  const Linear& model() const { return *model_; }

  // ---- Training ----

  // Collective. The next step, of an epoch that is not at its end.
  absl::Status Step();

  // Local. The end of an epoch: the next one begins. Returns the loss of the one that has ended.
  absl::StatusOr<double> EndEpoch();

  // Collective. The sum of squared errors over all rows.
  absl::StatusOr<double> TotalError();

  // ---- Saving ----

  // Collective. Whether every rank has made its last step; Step itself says so only at the next one.
  absl::Status CheckLastStep();

  // Collective. What writes all of the run into a file; see GatherTrainingState.
  absl::StatusOr<std::function<absl::Status(WritableFile& file)>> GatherState(std::string_view name);

  // Local. The model alone, as a state dict of Python's torch.nn.Linear.
  absl::Status WriteModel(WritableFile& file) const;

 private:
  // What Load has found and does not take over before all is well.
  struct Found {
    SavedRun run;
    std::unique_ptr<StepLR> schedule;
  };

  absl::Status MakeAll();
  // Whether a saved run can go on as the options say.
  absl::StatusOr<Found> Examine(const TrainingState& state) const;
  // The schedule that goes on from a saved one; null if the learning rate stays.
  absl::StatusOr<std::unique_ptr<StepLR>> ScheduleFrom(const TrainingState& state, const RunSettings& saved) const;

  // Calls `function` unless something failed before, and remembers if it fails: the next SumOverRanks says so.
  template <typename Function>
  void Try(Function function);

  StateFormat format() const { return options_.format == "pt" ? StateFormat::kTorch : StateFormat::kSafetensors; }

  // The sum of squared errors on `rows`; differentiable.
  at::Tensor SquaredError(absl::Span<const int64_t> rows);
  // Puts the gradients of my share, and its error, into `sums_`.
  void ComputeGradients(absl::Span<const int64_t> share);
  // Makes a step with the gradients in `sums_`, which are those of `num_rows` rows.
  void ApplyGradients(int64_t num_rows);
  // Collective. Adds up `sums_` over the ranks, unless one of them has failed.
  absl::Status SumOverRanks(std::string_view what);

  // An error unless the sum over all ranks, `total_error`, is finite. As all have the same sum, all get the same
  // answer.
  absl::Status CheckFinite(double total_error, std::string_view where) const;

  // The places in `sums_` behind the gradients.
  at::Tensor error() { return sums_[sums_.numel() - 2]; }
  at::Tensor failures() { return sums_[sums_.numel() - 1]; }

  ProcessGroup& group_;
  const Dataset& data_;
  const LinearTrainerOptions& options_;
  const at::Device device_;
  const RunSettings settings_;
  std::shared_ptr<Linear> model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerExtras optimizer_extras_;
  std::unique_ptr<StepLR> schedule_;  // null if the learning rate stays
  int64_t steps_done_ = 0, epochs_done_ = 0;
  EpochPosition position_;
  std::optional<std::vector<int64_t>> order_;  // of the rows in the epoch that has begun
  at::Tensor features_, targets_;
  at::Tensor sums_;  // double: gradients of all parameters, squared error, failed ranks
  absl::Status mine_;
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_LINEAR_TRAINING_H_
