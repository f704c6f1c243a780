// File: agree_on_same.h
//
// AgreeOnSame: all ranks must have been given the same thing.

#ifndef COHORT_TRAINERS_AGREE_ON_SAME_H_
#define COHORT_TRAINERS_AGREE_ON_SAME_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

// Collective. Returns OK on every rank if every rank brings OK and the same text; otherwise the same error on every
// rank. For what each rank reads by itself, flags and data: ranks that differ in them would train a model that nobody
// asked for, or part ways and hang.
//
// Errors: what the lowest rank with an error brought; InvalidArgument if the texts differ (shows that of rank 0 and
// that of the lowest rank that differs); and those of ProcessGroup::Agree.
absl::Status AgreeOnSame(ProcessGroup& group, std::string_view name, absl::StatusOr<std::string> mine);

}  // namespace cohort

#endif  // COHORT_TRAINERS_AGREE_ON_SAME_H_
