// File: linear_trainer.h
//
// TrainLinear: fits a linear model to a table of numbers, on all ranks of a group together. This header needs no
// LibTorch.

#ifndef COHORT_TRAINERS_LINEAR_TRAINER_H_
#define COHORT_TRAINERS_LINEAR_TRAINER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/dataset.h"

namespace cohort {

// Must be equal on all ranks.
struct LinearTrainerOptions {
  // How often every row is used; at least 1.
  int64_t epochs = 10;
  // Every save_every-th epoch is saved, from epoch 0 on, and the last one; at least 1.
  int64_t save_every = 5;
  // Where model_epoch_E.pth goes; a relative path is MainOnlySaver's to settle. Not empty.
  std::string checkpoint_dir = "checkpoints";
  // Rows a step, of all ranks together: so the result does not depend on the number of ranks. At least 1. More than
  // there are rows means all of them.
  int64_t batch_size = 32;
  // "sgd" or "adam".
  std::string optimizer = "sgd";
  // More than 0, and finite as a float; nullopt: see LearningRate.
  std::optional<double> learning_rate;
  // Of the parameters' first values and of the order of the rows.
  uint64_t seed = 0;
};

// Local. The learning rate that `options` mean for `data`. Unless they say otherwise:
//   sgd   0.5 / (features + 1): an input's squared length is features + 1 in the mean, as features have deviation 1 and
//         the bias is one more; that length is what bounds the steps that do not overshoot.
//   adam  0.02 x the targets' root mean square: Adam steps by so much whatever the gradient, and the parameters are of
//         the targets' size.
double LearningRate(const LinearTrainerOptions& options, const Dataset& data);

// How an epoch went. Equal on all ranks.
struct EpochReport {
  int64_t epoch = 0;
  // Mean squared error over the epoch's rows, each taken just before the step that learns from it; in squared units of
  // the target.
  double loss = 0;
  // After the epoch, over all rows: the share of the targets' variation that the model explains. At most 1; NaN if the
  // targets do not vary.
  double r2 = 0;
};

// Called on every rank, as things happen. Must not throw. Either may be empty.
struct LinearTrainerObserver {
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const SaveReport&)> on_save;
};

// Local. InvalidArgument if an option is out of its range: "OPTION=VALUE: what is allowed".
absl::Status CheckLinearTrainerOptions(const LinearTrainerOptions& options);

// Collective. Returns this rank's data, its features standardized, if every rank has the same.
//
// Errors, the same on all ranks: what the lowest rank with an error brought as `mine`; InvalidArgument if there are
// fewer rows than ranks or the ranks' data differ; and those of ProcessGroup::Agree.
absl::StatusOr<Dataset> AgreeOnDataset(ProcessGroup& group, absl::StatusOr<Dataset> mine);

// Collective. Minimizes the mean squared error of a Linear(features, targets) on `data`, which AgreeOnDataset returned,
// and saves checkpoints that Python's torch.nn.Linear loads. Returns the last epoch's report.
//
// Errors, the same on all ranks unless the group is poisoned:
//   InvalidArgument  options out of range, or different between ranks; the loss is no longer a finite number (the
//                    learning rate is too high)
//   any code         what LibTorch threw on a rank
//   and those of MainOnlySaver::Save and AllReduceSum. Checkpoints saved before stay.
absl::StatusOr<EpochReport> TrainLinear(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options,
                                        const LinearTrainerObserver& observer);

}  // namespace cohort

#endif  // COHORT_TRAINERS_LINEAR_TRAINER_H_
