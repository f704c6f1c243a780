// File: save_log.h

#ifndef COHORT_CHECKPOINT_INTERNAL_SAVE_LOG_H_
#define COHORT_CHECKPOINT_INTERNAL_SAVE_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_request.h"

namespace cohort::internal {

// A line of JSON, with its newline: how a save of `step` went that ended at `time`. `report` means nothing if `outcome` is an
// error, but for `blocked`.
std::string SaveLogLine(absl::Time time, int64_t step, const absl::Status& outcome, const CheckpointReport& report,
                        int64_t num_failed_saves);

// What SaveLogLine begins with: the kind of the ReportFile.
inline constexpr std::string_view kSaveLogFirstKey = "time";

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SAVE_LOG_H_
