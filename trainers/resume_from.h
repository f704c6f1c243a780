// File: resume_from.h
//
// ResumeFrom: what a run is told to go on from, as a person types it. No LibTorch.

#ifndef COHORT_TRAINERS_RESUME_FROM_H_
#define COHORT_TRAINERS_RESUME_FROM_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace cohort {

struct ResumeFrom {
  enum class Kind {
    kAuto,  // the newest checkpoint in the run's own directory, if there is one
    kNone,  // nothing: the run starts over
    kStep,  // the one of `step` in the run's own directory
    kPath,  // `path`: a state file, a checkpoint's directory, or the directory of a run
  };
  Kind kind = Kind::kAuto;
  int64_t step = 0;
  std::string path;
};

// Local. "auto", "none", a step in decimal digits, or a path. A path that is one of the others is written as "./none".
//
// Errors: InvalidArgument if `text` is empty, which is not the same as none: an unset variable in a script would
// otherwise make the run begin anew; or if a step is too large.
absl::StatusOr<ResumeFrom> ParseResumeFrom(std::string_view text);

// Local. What ParseResumeFrom takes for `from`.
std::string ShowResumeFrom(const ResumeFrom& from);

// Local, of the main rank: it looks at the disk. The state file that `path` (of kPath; see TypedPath) stands for, as an
// absolute path: the file itself, state.pt or state.safetensors in a checkpoint's directory, or that of the newest
// complete checkpoint in a run's directory. The directory it is in is named without symlinks. A job may save there
// meanwhile; what is found may then be gone at any moment.
//
// Errors: NotFound: there is no such file (says what was looked for); and those of ReadRunDirectory.
absl::StatusOr<std::string> LocateStateFile(std::string_view path);

}  // namespace cohort

#endif  // COHORT_TRAINERS_RESUME_FROM_H_
