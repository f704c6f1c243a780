// File: trainer_flags.h
//
// The flags that all trainers have.

#ifndef COHORT_TRAINERS_TRAINER_FLAGS_H_
#define COHORT_TRAINERS_TRAINER_FLAGS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {

// Local. "--NAME=VALUE: ALLOWED".
absl::Status WrongFlag(std::string_view name, std::string_view value, std::string_view allowed);

// Local, before the flags are parsed. What they are unless somebody says otherwise.
void SetFlagDefaults(const TrainerOptions& defaults, std::string_view data);

// Local. --data, --target, --metrics_report.
std::string DataFlag();
std::vector<std::string> TargetFlag();
std::string MetricsReportFlag();

// Local. The options that the flags say.
TrainerOptions OptionsFromFlags();
InitProcessGroupOptions GroupOptionsFromFlags();

// Local, before any socket and any file. InvalidArgument if a flag is out of its range, or there is an argument that is
// no flag: `arguments` are what Abseil has left. `metrics` as for CheckTrainerOptions.
absl::Status CheckFlags(const std::vector<char*>& arguments, absl::Span<const std::string_view> metrics);

}  // namespace cohort

#endif  // COHORT_TRAINERS_TRAINER_FLAGS_H_
