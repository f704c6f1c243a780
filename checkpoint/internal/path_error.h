// File: path_error.h

#ifndef COHORT_CHECKPOINT_INTERNAL_PATH_ERROR_H_
#define COHORT_CHECKPOINT_INTERNAL_PATH_ERROR_H_

#include <string_view>

#include "absl/status/status.h"

namespace cohort::internal {

// `OPERATION "PATH": CAUSE`, with the code that the header of FileSystem promises. `error` is an errno.
absl::Status PathError(int error, std::string_view operation, std::string_view path);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_PATH_ERROR_H_
