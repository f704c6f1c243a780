// File: directories.h
//
// The directories above what is saved: made if missing, and on the disk before anybody is told.

#ifndef COHORT_CHECKPOINT_INTERNAL_DIRECTORIES_H_
#define COHORT_CHECKPOINT_INTERNAL_DIRECTORIES_H_

#include <string_view>

#include "absl/status/status.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort::internal {

// The directory of an absolute path; of "/x" it is "/". Points into `path`.
std::string_view DirectoryOf(std::string_view path);

// Makes `directory` and those above it that are missing. That one exists by now is no error, whoever made it; nor is it
// noticed here if what exists is no directory.
//
// Errors: those of FileSystem.
absl::Status MakeDirectories(FileSystem& file_system, std::string_view directory);

// Blocks until the entries of `directory` and of all directories above it are on the disk: any of them may be new. Not
// only those that MakeDirectories has just made are: a process that was killed after making them, or a save that failed,
// left directories which nobody has synced and which now look like old ones. An unchanged directory costs under a
// millisecond. One above that we may not open is skipped: we cannot have made it.
//
// Errors: those of FileSystem.
absl::Status SyncUpwards(FileSystem& file_system, std::string_view directory);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_DIRECTORIES_H_
