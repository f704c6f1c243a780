// File: run_schedule.h
//
// The learning-rate schedule of a run, made from its settings, and how it goes on when these are others.

#ifndef COHORT_TRAINERS_RUN_SCHEDULE_H_
#define COHORT_TRAINERS_RUN_SCHEDULE_H_

#include <cstdint>
#include <memory>

#include "ATen/core/ivalue.h"
#include "absl/status/statusor.h"
#include "cohort/trainers/lr_scheduler.h"
#include "cohort/trainers/run_settings.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace cohort {

// Local. The schedule of a run that begins; it sets the rates of the first epoch. Null if the rate stays.
absl::StatusOr<std::unique_ptr<EpochScheduler>> MakeSchedule(const RunSettings& settings,
                                                             torch::optim::Optimizer& optimizer);

// Local. The schedule with which a run goes on after `epoch` epochs, of which `state` was saved under "lr_scheduler".
// With the settings of `saved` it is that one. A StepLR may have other numbers now, come, or go: epochs are counted
// from the beginning of the run, whatever schedule it had then. The optimizer is as it was before.
//
// Errors: InvalidArgument if `state` is not that of the schedule that `saved` says.
absl::StatusOr<std::unique_ptr<EpochScheduler>> ResumeSchedule(const c10::IValue& state, int64_t epoch,
                                                               const RunSettings& saved, const RunSettings& now,
                                                               torch::optim::Optimizer& optimizer);

}  // namespace cohort

#endif  // COHORT_TRAINERS_RUN_SCHEDULE_H_
