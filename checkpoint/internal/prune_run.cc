#include "cohort/checkpoint/internal/prune_run.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/checkpoint_writer.h"
#include "cohort/checkpoint/internal/directories.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/remove_checkpoint.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/internal/run_lock.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/checkpoint/target_path.h"

namespace cohort::internal {
namespace {

std::string_view NameOf(const CheckpointInfo& checkpoint) {
  return std::string_view(checkpoint.path).substr(checkpoint.path.rfind('/') + 1);
}

// "latest" leads to the one saved last, which stays, unless a save failed at its last step or somebody has changed it.
// Before what it leads to is removed it is put right.
absl::Status KeepLatestAlive(FileSystem& file_system, const RunDirectory& run, const std::vector<size_t>& plan) {
  const absl::StatusOr<std::string> latest = file_system.ReadLink(absl::StrCat(run.path, "/", kLatestName));
  if (!latest.ok()) return absl::OkStatus();  // there is none, or it is nothing of ours
  const bool is_in_plan =
      std::any_of(plan.begin(), plan.end(), [&](size_t i) { return NameOf(run.checkpoints[i]) == *latest; });
  return is_in_plan ? PointLatestAt(file_system, run.path, NameOf(run.checkpoints.front())) : absl::OkStatus();
}

absl::Status Remove(FileSystem& file_system, const RunDirectory& run, const CheckpointInfo& checkpoint) {
  const absl::Status removed = RemoveCheckpoint(file_system, run.path, NameOf(checkpoint));
  // Somebody else has removed it.
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

}  // namespace

absl::Status PruneRun(std::string_view path, const RetentionPolicy& policy,
                      absl::FunctionRef<void(const CheckpointInfo& checkpoint, const absl::Status& removed)> done,
                      absl::FunctionRef<void(std::string_view warning)> warn, FileSystem* absl_nullable file_system) {
  FileSystem& disk = file_system != nullptr ? *file_system : *FileSystem::Posix();
  ABSL_RETURN_IF_ERROR(CheckRetentionPolicy(policy));
  // Before anything is made: what is not a run's directory gets no lock file.
  ABSL_ASSIGN_OR_RETURN(RunDirectory run, ReadRunDirectory(disk, path));
  // Nothing is removed through a symlink, so the run's own is followed first.
  ABSL_ASSIGN_OR_RETURN(const std::string inside, ResolveTarget(disk, absl::StrCat(path, "/", kRunFileName)));
  path = DirectoryOf(inside);
  if (run.checkpoints.empty()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock, LockRunDirectory(disk, path, "prunes"));
  if (lock == nullptr) {
    warn(absl::StrCat(Quoted(path),
                      " is on a file system without locks: nothing keeps a job from saving there meanwhile"));
  } else if (const absl::Status removed = RemoveUnfinished(disk, path); !removed.ok()) {
    warn(absl::StrCat("what an earlier job left unfinished is still there: ", removed.message()));
  }
  ABSL_ASSIGN_OR_RETURN(run, ReadRunDirectory(disk, path));
  const std::vector<size_t> plan = PlanRetention(run.checkpoints, policy);
  ABSL_RETURN_IF_ERROR(KeepLatestAlive(disk, run, plan));
  absl::Status first;
  for (const size_t i : plan) {
    const CheckpointInfo& checkpoint = run.checkpoints[i];
    // A person may have pinned it meanwhile. If in doubt it stays.
    if (!absl::IsNotFound(disk.Inspect(absl::StrCat(checkpoint.path, "/", kPinnedName)).status())) continue;
    const absl::Status removed = Remove(disk, run, checkpoint);
    done(checkpoint, removed);
    first.Update(removed);
  }
  return first;
}

}  // namespace cohort::internal
