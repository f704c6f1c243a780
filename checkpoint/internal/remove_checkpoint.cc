// Removing is:
//
//  1  Rename the checkpoint to a name that nobody takes for a checkpoint's, so that no reader ever finds half of one.
//  2  fsync the run directory. Otherwise a loss of power could keep step 3 and lose step 1.
//  3  Remove its files, and then the directory.
//
// A process that dies in between leaves the hidden name, and the next job that has the lock goes on with step 2: the
// one that died may not have come to it, or it failed.

#include "cohort/checkpoint/internal/remove_checkpoint.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/temporary_name.h"

namespace cohort::internal {
namespace {

// The names in the directory `path`, if all of them are what saves make, or can be removed like it.
absl::StatusOr<std::vector<std::string>> ListRemovable(FileSystem& file_system, const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> names, file_system.List(path));
  for (const std::string& name : names) {
    const std::string inside = absl::StrCat(path, "/", name);
    ABSL_ASSIGN_OR_RETURN(const FileInfo found, file_system.Inspect(inside));
    if (found.type == FileType::kRegular || found.type == FileType::kSymlink) continue;
    return absl::FailedPreconditionError(absl::StrCat(Quoted(inside), " is ",
                                                      found.type == FileType::kDirectory ? "a directory" : "no file",
                                                      ", which no save has made; what it is in stays as it is"));
  }
  return names;
}

// Step 3. Symlinks are removed, not followed: one in the place of the directory, too. Remove sees to it that the directory
// is still no symlink when it comes to a file.
absl::Status RemoveTree(FileSystem& file_system, const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const FileInfo found, file_system.Inspect(path));
  if (found.type != FileType::kDirectory) return file_system.Remove(path);
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListRemovable(file_system, path));
  absl::Status first;
  for (const std::string& name : names) first.Update(file_system.Remove(absl::StrCat(path, "/", name)));
  ABSL_RETURN_IF_ERROR(first);
  return file_system.RemoveDirectory(path);
}

}  // namespace

absl::Status RemoveCheckpoint(FileSystem& file_system, std::string_view directory, std::string_view name) {
  const std::string path = absl::StrCat(directory, "/", name);
  ABSL_ASSIGN_OR_RETURN(const FileInfo found, file_system.Inspect(path));
  if (found.type != FileType::kDirectory) {
    return absl::FailedPreconditionError(absl::StrCat(Quoted(path), " is no longer a directory; it stays"));
  }
  ABSL_RETURN_IF_ERROR(ListRemovable(file_system, path).status());
  const std::string hidden = absl::StrCat(directory, "/", TemporaryName("removed"));
  ABSL_RETURN_IF_ERROR(file_system.Rename(path, hidden));
  ABSL_RETURN_IF_ERROR(file_system.SyncDirectory(directory));
  return RemoveTree(file_system, hidden);
}

absl::Status RemoveUnfinished(FileSystem& file_system, std::string_view directory) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> names, file_system.List(directory));
  const auto is_of = [](std::string_view kind) {
    return [prefix = TemporaryPrefix(kind)](std::string_view name) { return absl::StartsWith(name, prefix); };
  };
  if (std::any_of(names.begin(), names.end(), is_of("removed"))) {
    ABSL_RETURN_IF_ERROR(file_system.SyncDirectory(directory));  // step 2
  }
  absl::Status first;
  for (const std::string& name : names) {
    const std::string path = absl::StrCat(directory, "/", name);
    if (is_of("step")(name) || is_of("removed")(name)) {
      first.Update(RemoveTree(file_system, path));
    } else if (is_of(kLatestName)(name)) {
      first.Update(file_system.Remove(path));
    }
  }
  return first;
}

}  // namespace cohort::internal
