// File: run_file.h
//
// run.json of a run directory: which run it is.
//
//   {"version": 1, "run_id": "7f3a", "created": "2026-12-02T10:00:00Z"}

#ifndef COHORT_CHECKPOINT_INTERNAL_RUN_FILE_H_
#define COHORT_CHECKPOINT_INTERNAL_RUN_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::internal {

inline constexpr std::string_view kRunFileName = "run.json";
inline constexpr int64_t kMaxRunFileBytes = 64 << 10;

struct RunFile {
  std::string run_id;
  absl::Time created;
};

// `run` must have an id that CheckRunId allows. What is finer than a second of `created` is lost.
std::string EncodeRunFile(const RunFile& run);

// Of a text of unknown origin. Members that are not known are for later cohorts of the same version.
//
// Errors: InvalidArgument: it is longer than kMaxRunFileBytes, of another version, or no such file: says which
// member, its value and what is allowed.
absl::StatusOr<RunFile> DecodeRunFile(std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_RUN_FILE_H_
