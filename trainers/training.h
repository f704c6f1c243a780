// File: training.h
//
// Training: the model on this rank, what trains it, and how far it is. Knows no directory and no plan of saves.

#ifndef COHORT_TRAINERS_TRAINING_H_
#define COHORT_TRAINERS_TRAINING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/Device.h"
#include "cohort/checkpoint/optimizer_state.h"
#include "cohort/checkpoint/training_state.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/batch_loader.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/run_settings.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trained_model.h"
#include "cohort/trainers/trainer_options.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace cohort {

class Training {
 public:
  // Collective errors of the training, beside those of ProcessGroup: if one rank fails alone (its data cannot be read,
  // its loss is no finite number, LibTorch throws) it says so to the others, and every rank gets that error, as "rank
  // K: TEXT", from this call or the next one; the group is then poisoned.

  // All must outlive the object. `rows` are all there are.
  Training(ProcessGroup& group, const RowSource& rows, Task& task, const TrainerOptions& options);

  // Collective. Makes the model as it is before the first step, and everything else. Before all that follows. Every
  // rank's random numbers then begin with SeedOfRank.
  absl::Status Begin();

  // Collective. Goes on from a state file, of any number of ranks: of another one as LoadTrainingState says, with a
  // warning to `on_warning` on the main rank. Returns what is not as it was saved, for people: "batch_size 32, was 64".
  // If it fails nothing is changed, as LoadTrainingState says. Errors: those of LoadTrainingState, ReadRunState,
  // CheckCanGoOn and DistributedSampler::Load.
  absl::StatusOr<std::vector<std::string>> Load(std::string_view path,
                                                std::function<void(std::string_view)> on_warning);

  // ---- Local: where it is ----

  int64_t steps_done() const { return steps_done_; }
  int64_t epochs_done() const { return epochs_done_; }
  int64_t rows_done() const { return loader_->position().items_done(); }  // of the epoch that has begun, by all ranks
  bool is_at_end_of_epoch() const { return loader_->position().is_at_end(); }
  int64_t rows_in_epoch() const { return learned_->num_rows(); }
  int64_t rows_held_out() const { return rows_.num_rows() - learned_->num_rows(); }
  double learning_rate() const { return optimizer_->param_groups()[0].options().get_lr(); }
  const torch::nn::Module& module() const { return model_->module(); }
  const std::vector<int64_t>& last_rows() const { return last_rows_; }  // what this rank used in the last step

  // ---- Training ----

  // Collective. The next step, of an epoch that is not at its end.
  absl::Status Step();

  struct EpochResult {
    double loss = 0;              // of the epoch: each row's just before the step that learned from it
    std::vector<double> metrics;  // after it; as Task::metrics
  };
  // Collective: one all-reduce. The end of an epoch; the next one begins. Equal on all ranks.
  //
  // Errors, beside those above: InvalidArgument if the loss or what the metrics are made of is no longer finite.
  absl::StatusOr<EpochResult> EndEpoch();

  // ---- Saving ----

  // Collective. What writes all of the run into a file; see GatherTrainingState. Within an epoch one all-reduce.
  absl::StatusOr<std::function<absl::Status(WritableFile& file)>> GatherState(std::string_view name);

  // Local. The model alone, as a state dict of Python's.
  absl::Status WriteModel(WritableFile& file) const;

 private:
  // What Load has found and does not take over before all is well.
  struct Found {
    SavedRun run;
    std::unique_ptr<EpochScheduler> schedule;
  };

  // Local, each before the next one.
  absl::Status SplitData();
  absl::Status MakeOptimizerAndSchedule();
  // Whether a saved run can go on as the options say.
  absl::StatusOr<Found> Examine(const TrainingState& state) const;
  absl::Status TakeOver(const TrainingState& state, Found found);
  std::vector<std::string> ApplyChanges(const RunSettings& saved);

  // Collective. Adds the gradients of all parts of this rank's share.
  absl::Status AddGradients(const LoadedBatch& batch);
  // Local. The rows' loss as it is learned from; adds it to loss_sum_.
  absl::StatusOr<at::Tensor> LossOf(const at::Tensor& output, const at::Tensor& targets, int64_t rows_of_all);
  absl::Status ApplyGradients();
  // Local. InvalidArgument that names the first row whose numbers are not finite, as it is counted in the data.
  absl::Status CheckLearnedFinite(const LoadedBatch& batch) const;
  absl::Status CheckMeasuredFinite() const;
  // Local. What Task::Sums makes of this rank's share of the rows that metrics are of.
  absl::StatusOr<at::Tensor> EvaluateShare();
  // Collective. Every rank's loss_sum_, on every rank.
  absl::StatusOr<std::vector<double>> LossSums();

  // Collective only in that the others hear of it: this rank cannot go on. Returns what all get.
  absl::Status Fail(const absl::Status& why);
  std::string Place() const;  // "epoch 3, row 64"
  absl::Status NotFinite(std::string_view what) const;
  TrainingStateOptions StateOptions() const;
  StateFormat format() const { return options_.format == "pt" ? StateFormat::kTorch : StateFormat::kSafetensors; }

  ProcessGroup& group_;
  const RowSource& rows_;
  Task& task_;
  const TrainerOptions& options_;
  const at::Device device_;
  const RunSettings settings_;
  std::unique_ptr<RowSource> learned_part_, held_out_part_;  // null if nothing is held out
  const RowSource* learned_ = nullptr;                       // what is learned from
  const RowSource* measured_ = nullptr;                      // what metrics are of
  std::unique_ptr<BatchLoader> loader_;
  std::unique_ptr<TrainedModel> model_;
  std::vector<at::Tensor> parameters_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  OptimizerExtras optimizer_extras_;
  std::unique_ptr<EpochScheduler> schedule_;  // null if the learning rate stays
  int64_t steps_done_ = 0, epochs_done_ = 0;
  double loss_sum_ = 0;  // of this rank's rows in the epoch that has begun
  std::vector<int64_t> last_rows_;
};

// Local. What rank `rank` of a run with `seed` seeds its random numbers with when the model is made: the low 32 bits of
// SplitMix64(seed), plus the rank, modulo 2^32, which is as much as LibTorch's generator takes.
uint64_t SeedOfRank(uint64_t seed, int rank);

}  // namespace cohort

#endif  // COHORT_TRAINERS_TRAINING_H_
