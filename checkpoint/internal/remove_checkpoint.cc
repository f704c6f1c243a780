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
#include "cohort/checkpoint/internal/temporary_name.h"

namespace cohort::internal {
namespace {

// Step 3. Symlinks are removed, not followed.
absl::Status RemoveTree(FileSystem& file_system, const std::string& path) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> names, file_system.List(path));
  absl::Status first;
  for (const std::string& name : names) first.Update(file_system.Remove(absl::StrCat(path, "/", name)));
  ABSL_RETURN_IF_ERROR(first);
  return file_system.RemoveDirectory(path);
}

}  // namespace

absl::Status RemoveCheckpoint(FileSystem& file_system, std::string_view directory, std::string_view name) {
  const std::string hidden = absl::StrCat(directory, "/", TemporaryName("removed"));
  ABSL_RETURN_IF_ERROR(file_system.Rename(absl::StrCat(directory, "/", name), hidden));
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
    } else if (is_of("latest")(name)) {
      first.Update(file_system.Remove(path));
    }
  }
  return first;
}

}  // namespace cohort::internal
