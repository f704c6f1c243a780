// File: run_settings.h
//
// What a state file says of a trainer's run beside its model and its optimizer: with which settings it was made, and
// how far it is in its epoch.

#ifndef COHORT_TRAINERS_RUN_SETTINGS_H_
#define COHORT_TRAINERS_RUN_SETTINGS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort {

// With equal settings a resumed run makes, bit for bit, what it would have made without the interruption.
struct RunSettings {
  int64_t rows = 0, features = 0, targets = 0;  // of all data; numbers in a row
  int64_t data_checksum = 0;
  double validation = 0;
  std::string task;        // the model's name and what else is the task's own: "Linear(10, 1)"
  int64_t batch_size = 0;  // at most `rows`
  int64_t accumulate = 1;
  double clip_grad_norm = 0;  // 0: it is left alone
  std::string seed;           // in decimal digits: a state file's integers end at 2^63
  std::string optimizer;
  double momentum = 0;
  int64_t lr_step_size = 0;
  double lr_gamma = 0;  // 0 without lr_step_size
  int64_t lr_cosine_epochs = 0, lr_warmup_epochs = 0;
};

// Equal on all ranks, so that any number of them can go on from it.
struct SavedRun {
  RunSettings settings;
  c10::IValue sampler;  // DistributedSampler::State()
  // For each rank that saved, the sum of its rows' losses in the epoch that has begun, each taken just before the step
  // that learned from it. Empty at the beginning of an epoch.
  std::vector<double> loss_sums;
};

// A setting that is not what it was.
struct SettingChange {
  std::string_view name;
  std::string saved, now;  // as a person reads them; texts in quotes
};

// Local. A dict with each of these under its name, for TrainingState::data.
c10::IValue RunState(const SavedRun& run);

// Local. What RunState made; what `sampler` is, is for DistributedSampler::Load to say.
//
// Errors: InvalidArgument if it is no such dict (says why), or a sum is not finite.
absl::StatusOr<SavedRun> ReadRunState(const c10::IValue& state);

// Local. Every setting that differs, in the order above.
std::vector<SettingChange> ChangesOf(const RunSettings& saved, const RunSettings& now);

// Local. OK if a run that was saved so can go on with `now`, though it then makes something else than it would have.
//
// Errors: InvalidArgument, "saved with NAME=VALUE ...; now NAME=VALUE ...: REASON", of what it cannot go on with:
//   rows, features, targets, data_checksum   the features of a table are standardized over all rows, so that the
//                                            parameters of one table mean nothing for another one
//   validation                               rows that were learned from would be held out
//   optimizer                                what one has in its state the other does not understand
//   momentum, from 0 with rmsprop            its state has no place for it
//   lr_cosine_epochs, lr_warmup_epochs       their rate at an epoch comes from that of the epoch before
// And the seed, within an epoch, which DistributedSampler::Load refuses.
absl::Status CheckCanGoOn(const SavedRun& saved, const RunSettings& now);

}  // namespace cohort

#endif  // COHORT_TRAINERS_RUN_SETTINGS_H_
