// File: linear_trainer_options.h
//
// LinearTrainerOptions: what TrainLinear is told. No LibTorch.

#ifndef COHORT_TRAINERS_LINEAR_TRAINER_OPTIONS_H_
#define COHORT_TRAINERS_LINEAR_TRAINER_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {

// Must be equal on all ranks.
struct LinearTrainerOptions {
  // ---- What is trained ----

  // How often every row is used, in all: a resumed run makes what is left of them. At least 1.
  int64_t epochs = 10;
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

  // ---- What is saved, and when ----

  // The run's directory (CheckpointManagerOptions::directory), in which model_epoch_E, the model alone, goes as well; a
  // relative path is CheckpointManager's to settle. Not empty.
  std::string checkpoint_dir = "checkpoints";
  // "pt": model_epoch_E.pth, and state.pt in a checkpoint; or "safetensors".
  std::string format = "pt";
  // Every save_every-th epoch is saved, the model and a checkpoint, from epoch 0 on, and the last one; at least 1.
  int64_t save_every = 5;
  // When a checkpoint is saved as well: see SaveTriggerOptions.
  std::optional<int64_t> save_every_steps;
  std::optional<absl::Duration> save_every_time;
  std::vector<int> save_signals;
  // How many of the newest checkpoints stay, at least 1; nullopt: all, or, with keep_best, 1.
  std::optional<int64_t> keep;
  // How many of the best stay besides, at least 1, by "loss" (the least, and the default) or "r2" (the greatest). Both
  // are of whole epochs: what was saved within one has NaN, and is among the best only while there are too few others.
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

// Local. InvalidArgument if an option is out of its range: "OPTION=VALUE: what is allowed".
absl::Status CheckLinearTrainerOptions(const LinearTrainerOptions& options);

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

// Local. 0.01 / the targets' root mean square.
double WeightDecay(const Dataset& data);

// Local. lr_gamma, or what it is by default.
double Gamma(const LinearTrainerOptions& options);

// Local. All of them in one line, the learning rate as it is for `data`: for AgreeOnSame.
std::string ShowLinearTrainerOptions(const LinearTrainerOptions& options, const Dataset& data);

}  // namespace cohort

#endif  // COHORT_TRAINERS_LINEAR_TRAINER_OPTIONS_H_
