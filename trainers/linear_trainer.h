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
  // How often every row is used, in all: a resumed run makes what is left of them. At least 1.
  int64_t epochs = 10;
  // Every save_every-th epoch is saved, from epoch 0 on, and the last one; at least 1.
  int64_t save_every = 5;
  // Where model_epoch_E and state_epoch_E go; a relative path is MainOnlySaver's to settle. Not empty.
  std::string checkpoint_dir = "checkpoints";
  // "pt": model_epoch_E.pth and state_epoch_E.pt; or "safetensors".
  std::string format = "pt";
  // The state file, of either format, that the run goes on from; nullopt: it begins. A relative path is
  // LoadTrainingState's to settle.
  std::optional<std::string> resume;
  // Rows a step, of all ranks together: so the result does not depend on the number of ranks. At least 1. More than
  // there are rows means all of them.
  int64_t batch_size = 32;
  // "sgd", "adam", "adamw", "rmsprop" or "adagrad".
  std::string optimizer = "sgd";
  // Of sgd and rmsprop: at least 0, below 1; nullopt: 0.
  std::optional<double> momentum;
  // More than 0, and finite as a float; nullopt: see LearningRate, or what a resumed run has.
  std::optional<double> learning_rate;
  // The learning rate is multiplied by lr_gamma after every lr_step_size epochs; 0: it stays. lr_gamma is more than 0 and
  // finite as a float; nullopt: 0.1.
  int64_t lr_step_size = 0;
  std::optional<double> lr_gamma;
  // Of the parameters' first values and of the order of the rows.
  uint64_t seed = 0;
};

// Local. The learning rate that a run with `options` on `data` begins with. Unless they say otherwise:
//   sgd      0.5 (1 - momentum) / (features + 1): an input's squared length is features + 1 in the mean, as features have
//            deviation 1 and the bias is one more; that length is what bounds the steps that do not overshoot. With
//            momentum every gradient is used 1 / (1 - momentum) times.
//   adam     0.02 x the targets' root mean square: Adam steps by so much whatever the gradient, and the parameters are of
//            the targets' size.
//   adamw    as adam. Its weight decay is 0.01 / the targets' root mean square, so that the unit of the targets does not
//            matter: with 0.01 itself AdamW holds every parameter below 100.
//   rmsprop  0.02 (1 - momentum) x the targets' root mean square: its steps are as long as Adam's.
//   adagrad  0.5 x the targets' root mean square: step n is shorter by the root of n, and the steps of the default run
//            are so as long as Adam's together.
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

// What a run goes on from. Equal on all ranks.
struct ResumeReport {
  int64_t epochs = 0;  // that are done
  int64_t step = 0;    // steps that the optimizer has made
  double saved_learning_rate = 0;
  double learning_rate = 0;  // that the run goes on with
};

// Called on every rank, as things happen. Must not throw. Each may be empty.
struct LinearTrainerObserver {
  std::function<void(const ResumeReport&)> on_resume;
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

// Collective. Minimizes the mean squared error of a Linear(features, targets) on `data`, which AgreeOnDataset returned.
// Saves two files an epoch: model_epoch_E, the state dict of Python's torch.nn.Linear, and then state_epoch_E, the whole
// run as SaveTrainingState saves it, for `resume` and for Python. Returns the last epoch's report.
//
// A resumed run makes, bit for bit, what the run would have made that was not interrupted. So the data, the number of
// ranks and the options must be those that it was saved with, but for `epochs`, which must be more than are done,
// `save_every`, `checkpoint_dir` and `format`. The learning rate is the saved one, unless the options have another: then
// the run, and a schedule with it, goes on from that one. In the file, every rank's entry in "data" is a dict of these
// options and of rows, features, targets and data_checksum. Python may make the epochs in between: what it makes is not a
// bit apart with sgd, rmsprop and adagrad on one rank of the CPU; the formulas of Adam and AdamW are others there.
//
// Errors, the same on all ranks unless the group is poisoned:
//   InvalidArgument  options out of range, or different between ranks; the state to resume from has other options, or all
//                    epochs done, or was saved within an epoch: before anything is changed; the loss is no longer a finite
//                    number (the learning rate is too high)
//   any code         what LibTorch threw on a rank
//   and those of LoadTrainingState, MainOnlySaver::Save, SaveTrainingState and AllReduceSum. Checkpoints saved before
//   stay.
absl::StatusOr<EpochReport> TrainLinear(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options,
                                        const LinearTrainerObserver& observer);

}  // namespace cohort

#endif  // COHORT_TRAINERS_LINEAR_TRAINER_H_
