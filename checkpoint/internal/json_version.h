// File: json_version.h

#ifndef COHORT_CHECKPOINT_INTERNAL_JSON_VERSION_H_
#define COHORT_CHECKPOINT_INTERNAL_JSON_VERSION_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace cohort::internal {

// Whether a JSON file of ours is of the version that we read. It begins with the version, so that this can be told
// without knowing what a later one looks like.
//
// Errors: InvalidArgument, naming both versions, or that `json` does not begin with one.
absl::Status CheckJsonVersion(std::string_view json, int64_t version);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_JSON_VERSION_H_
