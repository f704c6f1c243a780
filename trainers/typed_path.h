// File: typed_path.h

#ifndef COHORT_TRAINERS_TYPED_PATH_H_
#define COHORT_TRAINERS_TYPED_PATH_H_

#include <string>
#include <string_view>

namespace cohort {

// Local. `path` as the person who typed it means it: under `bazel run` the working directory is not where they stand,
// but BUILD_WORKING_DIRECTORY says where that is. MainOnlySaver and CheckpointManager do the same.
std::string TypedPath(std::string_view path);

}  // namespace cohort

#endif  // COHORT_TRAINERS_TYPED_PATH_H_
