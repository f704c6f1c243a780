// File: remove_checkpoint.h

#ifndef COHORT_CHECKPOINT_INTERNAL_REMOVE_CHECKPOINT_H_
#define COHORT_CHECKPOINT_INTERNAL_REMOVE_CHECKPOINT_H_

#include <string_view>

#include "absl/status/status.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort::internal {

// Local and blocking. Removes the checkpoint `name` of a run directory that this process has locked: at one instant it is
// there, whole, and at the next it is not. Nothing outside of it is touched: symlinks are removed and not followed.
//
// Errors: those of FileSystem. NotFound if it is not there; FailedPrecondition if it is no directory, or holds one, or
// anything else but files and symlinks, which is somebody else's: then it stays, whole.
absl::Status RemoveCheckpoint(FileSystem& file_system, std::string_view directory, std::string_view name);

// Local. Removes what processes of this host that are dead left unfinished in a run directory that this process has locked.
// Returns the first error, having tried everything.
absl::Status RemoveUnfinished(FileSystem& file_system, std::string_view directory);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_REMOVE_CHECKPOINT_H_
