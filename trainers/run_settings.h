// File: run_settings.h
//
// What a state file says of a run of linear beside its model and its optimizer: with which settings it was made, and
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
  int64_t rows = 0, features = 0, targets = 0;
  int64_t data_checksum = 0;
  int64_t batch_size = 0;  // at most `rows`
  std::string seed;        // in decimal digits: a state file's integers end at 2^63
  std::string optimizer;
  double momentum = 0;
  int64_t lr_step_size = 0;
  double lr_gamma = 0;
};

// Where a run is in the epoch that it has begun.
struct EpochPosition {
  int64_t rows_done = 0;     // less than `rows`: at the end of an epoch it is 0 of the next one
  double squared_error = 0;  // the sum over those rows, each taken just before the step that learned from it
};

struct SavedRun {
  RunSettings settings;
  EpochPosition position;
};

// A setting that is not what it was.
struct SettingChange {
  std::string_view name;
  std::string saved, now;  // as a person reads them; texts in quotes
};

// Local. A dict with each of these under its name, for TrainingState::data.
c10::IValue RunState(const SavedRun& run);

// Local. What RunState made; the position may be missing: the end of an epoch.
//
// Errors: InvalidArgument if it is no such dict (says why), or the position is not one in an epoch.
absl::StatusOr<SavedRun> ReadRunState(const c10::IValue& state);

// Local. Every setting that differs, in the order above.
std::vector<SettingChange> ChangesOf(const RunSettings& saved, const RunSettings& now);

// Local. OK if a run that was saved so can go on with `now`, though it then makes something else than it would have.
//
// Errors: InvalidArgument, "saved with NAME=VALUE ...; now NAME=VALUE ...: REASON", of what it cannot go on with:
//   rows, features, targets, data_checksum   the features are standardized over all rows, so that the parameters of one
//                                            table mean nothing for another one
//   optimizer                                what one has in its state the other does not understand
//   seed, within an epoch                    the rows that are left are those of the order that it was begun with
//   momentum, from 0 with rmsprop            its state has no place for it
absl::Status CheckCanGoOn(const SavedRun& saved, const RunSettings& now);

}  // namespace cohort

#endif  // COHORT_TRAINERS_RUN_SETTINGS_H_
