// File: utc_time.h
//
// Points in time as files of ours have them: ISO 8601, in UTC.

#ifndef COHORT_CHECKPOINT_INTERNAL_UTC_TIME_H_
#define COHORT_CHECKPOINT_INTERNAL_UTC_TIME_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace cohort::internal {

// "2026-12-02T10:00:00.123456Z"; what is finer than a microsecond is cut off. Of the years 0 to 9999; what is beyond
// is taken for their beginning or end.
std::string UtcMicrosecondsText(absl::Time time);

// "2026-12-02T10:00:00Z".
std::string UtcSecondsText(absl::Time time);

// Reads what these write, and no other form of it.
std::optional<absl::Time> ParseUtcTime(std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_UTC_TIME_H_
