#include "cohort/checkpoint/internal/run_lock.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/temporary_name.h"

namespace cohort::internal {

absl::StatusOr<std::unique_ptr<FileLock>> LockRunDirectory(FileSystem& file_system, std::string_view directory,
                                                           std::string_view purpose) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  const std::string owner = absl::StrCat("process ", getpid(), " on host ", host, ", which ", purpose, " since ",
                                         absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()));
  absl::StatusOr<std::unique_ptr<FileLock>> lock =
      file_system.Lock(absl::StrCat(directory == "/" ? "" : directory, "/", kHiddenPrefix, "lock"), owner);
  if (absl::IsUnimplemented(lock.status())) return nullptr;
  if (absl::IsFailedPrecondition(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat(Quoted(directory), " is in use by another job: ", lock.status().message()));
  }
  return lock;
}

}  // namespace cohort::internal
