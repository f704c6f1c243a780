// File: run_settings.h
//
// RunSettings: what a run must go on with when it is resumed, as it stands in its state file.

#ifndef COHORT_TRAINERS_RUN_SETTINGS_H_
#define COHORT_TRAINERS_RUN_SETTINGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "cohort/checkpoint/internal/value_fields.h"

namespace cohort {

// With other data, another order of the rows or another optimizer a resumed run is no longer the one that was begun.
// The position in the data follows from these and the number of epochs done, since the trainer saves between epochs.
struct RunSettings {
  int64_t rows = 0, features = 0, targets = 0;
  int64_t data_checksum = 0;
  int64_t batch_size = 0;  // at most `rows`
  std::string seed;        // in decimal digits: a state file's integers end at 2^63
  std::string optimizer;
  double momentum = 0;
  int64_t lr_step_size = 0;
  double lr_gamma = 0;

  // Local. A dict with each of these under its name.
  c10::IValue State() const;

  // Local. InvalidArgument if `state` is not the State() of equal settings: not such a dict (says why), or "saved with
  // NAME=VALUE ...; now NAME=VALUE ..." of all that differ.
  absl::Status CheckSavedAs(const c10::IValue& state) const;

 private:
  std::vector<internal::Field> Fields();
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_RUN_SETTINGS_H_
