// File: trainer.h
//
// Train: trains a task's model on rows of data, on all ranks of a group together: epochs, checkpoints, going on after
// an interruption, stopping when told to. What all trainers share.

#ifndef COHORT_TRAINERS_TRAINER_H_
#define COHORT_TRAINERS_TRAINER_H_

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
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {

// How an epoch went. Equal on all ranks.
struct EpochReport {
  int64_t epoch = 0;
  int64_t step = 0;  // steps that the optimizer has made
  // The mean over the epoch's rows, each taken just before the step that learns from it.
  double loss = 0;
  // After the epoch, of the rows that are held out, or of all; as Task::metrics. NaN: undefined.
  std::vector<double> metrics;
  double learning_rate = 0;  // of the next epoch
};

// A step that was made. Equal on all ranks but for `rows`.
struct StepReport {
  int64_t step = 0, epoch = 0;
  int64_t rows_done = 0, rows_in_epoch = 0;  // of all ranks
  // What this rank has used in it, in order; numbers of the rows that are learned from. May be empty.
  const std::vector<int64_t>& rows;
};

// What a run begins or goes on with. Equal on all ranks.
struct BeginReport {
  std::string resumed_from;  // the directory of a checkpoint, or a file; absolute. Empty: it begins
  int64_t epochs = 0;        // that are done
  int64_t rows_done = 0;     // of the next one
  int64_t step = 0;          // steps that the optimizer has made
  int64_t rows_in_epoch = 0, rows_held_out = 0;
  double learning_rate = 0;
  // What is not as it was saved: "batch_size 32, was 64". The run then makes something else than it would have.
  std::vector<std::string> changes;
};

// Called on every rank, as things happen. Must not throw. Each may be empty.
struct TrainerObserver {
  std::function<void(const BeginReport&)> on_begin;
  std::function<void(const StepReport&)> on_step;
  std::function<void(const EpochReport&)> on_epoch;
  std::function<void(const SaveReport&)> on_export;  // of model_epoch_E
  std::function<void(const CheckpointReport&)> on_checkpoint;
  // Nothing more is trained or saved; `stop_signals` are still caught. Not after an error.
  std::function<void()> on_end;
  // On the main rank only: a save failed, a checkpoint was skipped, ... Empty: ABSL_LOG(WARNING).
  std::function<void(std::string_view)> on_warning;
};

// How a run ended. Equal on all ranks.
struct TrainerOutcome {
  // All epochs were done before, and nothing was trained.
  bool was_complete = false;
  // It was told to stop before all epochs were done, and its last step is saved.
  bool was_stopped = false;
  int64_t epochs_done = 0, steps_done = 0;
  int64_t rows_done = 0;  // of the next epoch, if it was stopped in its midst
  int64_t rows_held_out = 0;
  std::string directory;  // absolute
  EpochReport last;       // if an epoch came to its end
  int64_t failed_saves = 0;
};

// Collective. Returns OK if `mine` is the same data on every rank, at least a row for each.
//
// Errors, the same on all ranks: what the lowest rank with an error brought as `mine`; InvalidArgument if there are
// fewer rows than ranks or the ranks' data differ; and those of ProcessGroup::Agree.
absl::Status AgreeOnRows(ProcessGroup& group, const absl::StatusOr<const RowSource*>& mine);

// Collective. Minimizes the mean of the task's loss over the rows that are learned from. `rows` are those that
// AgreeOnRows has seen.
//
// Saves into the run's directory, as the options say when: model_epoch_E, the state dict of the model, and checkpoints,
// step_N/state.pt, each the whole run as SaveTrainingState saves it, with the loss and the task's metrics. A save that
// fails is a warning, unless the options say otherwise or a rank died; the next one is made when it would be.
//
// Saves and stops are between steps of the optimizer. A resumed run makes, bit for bit, what the run would have made
// that was not interrupted, from within an epoch as well: each rank's rows, losses, parameters, optimizer and random
// numbers. Options may be others than those it was saved with: what it then makes is not what it would have made, and
// BeginReport says which. What it cannot go on with, CheckCanGoOn lists. The learning rate is the saved one, unless the
// options have another: then the run, and a schedule with it, goes on from that one. Another number of ranks goes on as
// well, with one warning: the rows that are left are those that were left, model, optimizer and schedule are as they
// were saved, and every rank has random numbers of its own that follow from the file, its rank and the number of ranks.
// In the file, every rank's entry in "data" is what RunState (run_settings.h) makes. Python may make the epochs in
// between.
//
// Errors, the same on all ranks unless the group is poisoned:
//   InvalidArgument  options out of range, or different between ranks; the run to resume cannot go on with these; a
//                    state file that was asked for by its path has all epochs done: before anything is changed; the
//                    loss is no longer a finite number (the learning rate is too high, or the data are not: says which)
//   DataLoss         all is trained, or the run was told to stop, but the last save failed (says why)
//   any code         what LibTorch threw, or the data, on a rank: names the rank
//   and those of LoadTrainingState, Checkpointing and AllReduceSum. Checkpoints saved before stay.
absl::StatusOr<TrainerOutcome> Train(ProcessGroup& group, const RowSource& rows, Task& task,
                                     const TrainerOptions& options, const TrainerObserver& observer);

}  // namespace cohort

#endif  // COHORT_TRAINERS_TRAINER_H_
