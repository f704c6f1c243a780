// File: trainer_options.h
//
// TrainerOptions: what every trainer is told, whatever it trains. No LibTorch.

#ifndef COHORT_TRAINERS_TRAINER_OPTIONS_H_
#define COHORT_TRAINERS_TRAINER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {

inline constexpr int kMaxTrainerPrefetch = 1024;

// Must be equal on all ranks.
struct TrainerOptions {
  // ---- What is trained ----

  // How often every row is used, in all: a resumed run makes what is left of them. At least 1.
  int64_t epochs = 10;
  // Rows a step, of all ranks together: so the result does not depend on the number of ranks. At least 1. More than
  // there are rows means all of them.
  int64_t batch_size = 32;
  // A step's rows are worked off in so many parts, one after the other: that much less memory, the same step but for
  // rounding. At least 1. Gradients travel once a step.
  int64_t accumulate = 1;
  // The gradients' length, all parameters together, is cut down to this before the step. More than 0 and finite;
  // nullopt: it is left alone.
  std::optional<double> clip_grad_norm;
  // "sgd", "adam", "adamw", "rmsprop" or "adagrad".
  std::string optimizer = "sgd";
  // Of sgd and rmsprop: at least 0, below 1; nullopt: 0.
  std::optional<double> momentum;
  // More than 0, and finite as a float; nullopt: the task's, or what a resumed run has.
  std::optional<double> learning_rate;
  // At most one of three schedules, epoch by epoch, has a number above 0. The learning rate
  //   lr_step_size      is multiplied by lr_gamma (more than 0, finite as a float; nullopt: 0.1) after every so many
  //                     epochs
  //   lr_cosine_epochs  goes down to 0 as half a cosine in so many epochs (then up again)
  //   lr_warmup_epochs  begins with a tenth and goes up linearly in so many epochs
  int64_t lr_step_size = 0;
  std::optional<double> lr_gamma;
  int64_t lr_cosine_epochs = 0;
  int64_t lr_warmup_epochs = 0;
  // The share of the rows that is held out: metrics are of these rows, which nothing is learned from. 0: all rows are
  // learned from, and metrics are of them. At least 0, below 1. Which rows, SplitRows says.
  double validation = 0;
  // Of the parameters' first values, of the order of the rows and of every rank's random numbers.
  uint64_t seed = 0;
  // Batches that are read ahead in a thread; 0 to kMaxTrainerPrefetch. Changes nothing but the time.
  int prefetch = 2;

  // ---- What is saved, and when ----

  // The run's directory (CheckpointManagerOptions::directory), in which model_epoch_E, the model alone, goes as well; a
  // relative path is CheckpointManager's to settle. Not empty.
  std::string checkpoint_dir = "checkpoints";
  // "pt": model_epoch_E.pth, and state.pt in a checkpoint; or "safetensors".
  std::string format = "pt";
  // Every save_every-th epoch is saved, the model and a checkpoint, from epoch 0 on, and the last one; at least 1.
  int64_t save_every = 5;
  // When a checkpoint is saved as well, and when the run is to stop: see SaveTriggerOptions. stop_check_every, at least
  // 1, is its check_every.
  std::optional<int64_t> save_every_steps;
  std::optional<absl::Duration> save_every_time;
  std::vector<int> save_signals;
  std::vector<int> stop_signals;
  int64_t stop_check_every = 10;
  // How many of the newest checkpoints stay, at least 1; nullopt: all, or, with keep_best, 1.
  std::optional<int64_t> keep;
  // How many of the best stay besides, at least 1, by "loss" (the least, and the default) or a metric of the task.
  // These are of whole epochs: what was saved within one has NaN, and is among the best only while there are too few
  // others.
  std::optional<int64_t> keep_best;
  std::optional<std::string> keep_best_metric;
  // A save that fails ends the run. Otherwise the run goes on, and fails at its end if the last save has.
  bool stop_if_save_fails = false;
  // CheckpointManagerOptions::run_id and report_path.
  std::string run_id;
  std::string save_report;

  // ---- What it goes on from ----

  ResumeFrom resume;
};

// Local. InvalidArgument if an option is out of its range: "OPTION=VALUE: what is allowed". `metrics` are the names of
// the task's.
absl::Status CheckTrainerOptions(const TrainerOptions& options, absl::Span<const std::string_view> metrics);

// Local. lr_gamma, or what it is by default.
double Gamma(const TrainerOptions& options);

// Local. All of them in one line: for AgreeOnSame.
std::string ShowTrainerOptions(const TrainerOptions& options);

}  // namespace cohort

#endif  // COHORT_TRAINERS_TRAINER_OPTIONS_H_
