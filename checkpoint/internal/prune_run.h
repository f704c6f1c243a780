// File: prune_run.h
//
// PruneRun: retention by hand, for `ckpt prune`.

#ifndef COHORT_CHECKPOINT_INTERNAL_PRUNE_RUN_H_
#define COHORT_CHECKPOINT_INTERNAL_PRUNE_RUN_H_

#include <string_view>

#include "absl/base/nullability.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/retention.h"

namespace cohort {

class FileSystem;

namespace internal {

// Local and blocking. Removes from a run directory, locked meanwhile, what `policy` does not keep and nobody has
// pinned, and what saves of dead jobs of this host left unfinished. Each is removed as the manager does it, the one
// saved first first. `path` is absolute. A null file system is the machine's own.
//
// `done` is told of each that is to go, and how that went; after an error the next one is tried. `warn` is told if
// nobody else can be kept out, or something unfinished could not be removed.
//
// Errors: FailedPrecondition if another process has the directory (says who): nothing is removed; the first error of a
// removal; and those of CheckRetentionPolicy, ReadRunDirectory and FileSystem.
absl::Status PruneRun(std::string_view path, const RetentionPolicy& policy,
                      absl::FunctionRef<void(const CheckpointInfo& checkpoint, const absl::Status& removed)> done,
                      absl::FunctionRef<void(std::string_view warning)> warn,
                      FileSystem* absl_nullable file_system = nullptr);

}  // namespace internal
}  // namespace cohort

#endif  // COHORT_CHECKPOINT_INTERNAL_PRUNE_RUN_H_
