// File: runfile.h
//
// LocateRunfile: where a file that Bazel built for this program is now.

#ifndef COHORT_TRAINERS_DATA_RUNFILE_H_
#define COHORT_TRAINERS_DATA_RUNFILE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cohort {

// Local. Returns the path of the runfile `name` ("REPOSITORY/PACKAGE/FILE") for the program that was started as
// `argv0`: started by Bazel, by path, through a symlink, or from a copy of its runfiles tree, with any environment.
//
// Errors:
//   NotFound  it is in none of the places; lists them
absl::StatusOr<std::string> LocateRunfile(std::string_view argv0, std::string_view name);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_RUNFILE_H_
