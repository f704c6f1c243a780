// File: run_lock.h

#ifndef COHORT_CHECKPOINT_INTERNAL_RUN_LOCK_H_
#define COHORT_CHECKPOINT_INTERNAL_RUN_LOCK_H_

#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort::internal {

// Local. Takes the run directory `directory` (absolute, exists) for this process, as long as the lock lives; `purpose` ("saves")
// is told to who comes second. Null if the file system has no locks: then nobody can be kept out.
//
// Errors: FailedPrecondition if another process has it: who, on which host and since when; and those of FileSystem.
absl::StatusOr<std::unique_ptr<FileLock>> LockRunDirectory(FileSystem& file_system, std::string_view directory,
                                                           std::string_view purpose);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_RUN_LOCK_H_
