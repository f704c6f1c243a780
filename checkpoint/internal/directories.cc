#include "cohort/checkpoint/internal/directories.h"

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort::internal {

std::string_view DirectoryOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status MakeDirectories(FileSystem& file_system, std::string_view directory) {
  if (file_system.Inspect(directory).ok()) return absl::OkStatus();
  absl::Status made = file_system.MakeDirectory(directory);
  if (absl::IsNotFound(made) && directory != "/") {
    ABSL_RETURN_IF_ERROR(MakeDirectories(file_system, DirectoryOf(directory)));
    made = file_system.MakeDirectory(directory);
  }
  return absl::IsAlreadyExists(made) ? absl::OkStatus() : made;
}

absl::Status SyncUpwards(FileSystem& file_system, std::string_view directory) {
  ABSL_RETURN_IF_ERROR(file_system.SyncDirectory(directory));
  while (directory != "/") {
    directory = DirectoryOf(directory);
    const absl::Status synced = file_system.SyncDirectory(directory);
    if (!synced.ok() && !absl::IsPermissionDenied(synced)) return synced;
  }
  return absl::OkStatus();
}

}  // namespace cohort::internal
