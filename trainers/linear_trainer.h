// File: linear_trainer.h
//
// TrainLinear: fits a linear model to a table of numbers, on all ranks of a group together. This header needs no
// LibTorch.

#ifndef COHORT_TRAINERS_LINEAR_TRAINER_H_
#define COHORT_TRAINERS_LINEAR_TRAINER_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/linear_trainer_options.h"

namespace cohort {

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

// What a run begins or goes on with. Equal on all ranks.
struct BeginReport {
  std::string resumed_from;  // the directory of a checkpoint, or a file; absolute. Empty: it begins
  int64_t epochs = 0;        // that are done
  int64_t rows_done = 0;     // of the next one
  int64_t step = 0;          // steps that the optimizer has made
  double learning_rate = 0;
  // What is not as it was saved: "batch_size 32, was 64". The run then makes something else than it would have.
  std::vector<std::string> changes;
};

// Called on every rank, as things happen. Must not throw. Each may be empty.
struct LinearTrainerObserver {
  std::function<void(const BeginReport&)> on_begin;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const SaveReport&)> on_export;  // of model_epoch_E
  std::function<void(const CheckpointReport&)> on_checkpoint;
  // On the main rank only: a save failed, a checkpoint was skipped, ... Empty: ABSL_LOG(WARNING).
  std::function<void(std::string_view)> on_warning;
};

// How a run ended. Equal on all ranks.
struct LinearTrainerOutcome {
  // All epochs were done before, and nothing was trained.
  bool was_complete = false;
  int64_t epochs_done = 0;
  std::string directory;  // absolute
  EpochReport last;       // unless was_complete
  int64_t failed_saves = 0;
};

// Collective. Returns this rank's data, its features standardized, if every rank has the same.
//
// Errors, the same on all ranks: what the lowest rank with an error brought as `mine`; InvalidArgument if there are
// fewer rows than ranks or the ranks' data differ; and those of ProcessGroup::Agree.
absl::StatusOr<Dataset> AgreeOnDataset(ProcessGroup& group, absl::StatusOr<Dataset> mine);

// Collective. Minimizes the mean squared error of a Linear(features, targets) on `data`, which AgreeOnDataset returned.
//
// Saves into the run's directory, as the options say when: model_epoch_E, the state dict of Python's torch.nn.Linear,
// and checkpoints, step_N/state.pt, each the whole run as SaveTrainingState saves it, with the metrics loss and r2. A
// save that fails is a warning, unless the options say otherwise or a rank died; the next one is made when it would be.
//
// A resumed run makes, bit for bit, what the run would have made that was not interrupted, from within an epoch as
// well. Options may be others than those it was saved with: what it then makes is not what it would have made, and
// BeginReport says which. What it cannot go on with, CheckCanGoOn lists. The learning rate is the saved one, unless the
// options have another: then the run, and a schedule with it, goes on from that one. In the file, every rank's entry in
// "data" is what RunState (run_settings.h) makes. Python may make the epochs in between: what it makes is not a bit
// apart with sgd, rmsprop and adagrad on one rank of the CPU; the formulas of Adam and AdamW are others there.
//
// Errors, the same on all ranks unless the group is poisoned:
//   InvalidArgument  options out of range, or different between ranks; the run to resume cannot go on with these; a
//                    state file that was asked for by its path has all epochs done: before anything is changed; the
//                    loss is no longer a finite number (the learning rate is too high)
//   DataLoss         all is trained, but the last save failed (says why)
//   any code         what LibTorch threw on a rank
//   and those of LoadTrainingState, Checkpointing and AllReduceSum. Checkpoints saved before stay.
absl::StatusOr<LinearTrainerOutcome> TrainLinear(ProcessGroup& group, const Dataset& data,
                                                 const LinearTrainerOptions& options,
                                                 const LinearTrainerObserver& observer);

}  // namespace cohort

#endif  // COHORT_TRAINERS_LINEAR_TRAINER_H_
