// The durable-replace protocol.
//
//  1  Make the directories that are missing.
//  2  Remove the temporary files of dead processes from the target's directory: before we need space, and only where
//     the lock on the file says that its process is gone (FileSystem::RemoveIfAbandoned), so that a save of another job
//     beside us is safe. Only of this host: not every network file system passes locks on, and to us a live file of
//     another host could then look abandoned. A failure here is no reason not to save.
//  3  Make a temporary file in the target's own directory: a rename is atomic only within one file system. Its name
//     holds this host, this process and a random number, and is never one that exists.
//  4  Write. Nothing that reads the target sees any of it.
//  5  fsync the file. Without this, file systems may do the rename first and the data later: after a loss of power the
//     right name would hold zeros. An error here is final (FileSystem: OutputFile::Sync).
//  6  Rename over the target. Readers see the old file or the new one; whoever has the old one open keeps it.
//  7  fsync the target's directory, or a loss of power may undo the rename after we said that it was done. And all
//     directories above it (SyncUpwards says why).
//
// On an error before step 7 the temporary file is removed. Directories that were made stay: others may be using them by
// then.

#include "cohort/checkpoint/atomic_file.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/directories.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/temporary_name.h"

namespace cohort {
namespace {

using internal::DirectoryOf;
using internal::MakeDirectories;
using internal::SyncUpwards;
using internal::TemporaryName;
using internal::TemporaryPrefix;

// TemporaryPrefix
constexpr std::string_view kKind = "tmp";

void RemoveLeftovers(FileSystem& file_system, std::string_view directory) {
  const std::string prefix = TemporaryPrefix(kKind);
  absl::StatusOr<std::vector<std::string>> names = file_system.List(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    if (name.starts_with(prefix)) (void)file_system.RemoveIfAbandoned(absl::StrCat(directory, "/", name));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(FileSystem& file_system, std::string_view target) {
  auto file = absl::WrapUnique(new AtomicFile(file_system, target));
  const std::string_view directory = DirectoryOf(file->target_);
  absl::Status made = MakeDirectories(file_system, directory);  // step 1
  if (made.ok()) {
    RemoveLeftovers(file_system, directory);  // step 2
    made = file->MakeTemporary();             // step 3
  }
  if (!made.ok()) return file->Fail(made);
  return file;
}

AtomicFile::~AtomicFile() {
  // Should this fail, the next save in this directory tries again.
  if (!temporary_.empty()) (void)file_system_.Remove(temporary_);
}

absl::Status AtomicFile::MakeTemporary() {
  std::optional<int> permissions;
  if (absl::StatusOr<FileInfo> old = file_system_.Inspect(target_); old.ok()) permissions = old->permissions;
  absl::StatusOr<std::unique_ptr<OutputFile>> file;
  std::string path;
  do {
    path = absl::StrCat(DirectoryOf(target_), "/", TemporaryName(kKind));
    file = file_system_.Create(path, permissions);
  } while (absl::IsAborted(file.status()));
  ABSL_ASSIGN_OR_RETURN(file_, std::move(file));
  temporary_ = path;
  return absl::OkStatus();
}

absl::Status AtomicFile::Append(std::string_view bytes) {
  ABSL_RETURN_IF_ERROR(status_);
  ABSL_CHECK(!is_synced_) << target_;
  if (absl::Status appended = file_->Append(bytes); !appended.ok()) {  // step 4
    return Fail(
        absl::Status(appended.code(), absl::StrCat(appended.message(), "; ", num_bytes_, " bytes had been written and ",
                                                   bytes.size(), " more were to follow at once")));
  }
  num_bytes_ += bytes.size();
  return absl::OkStatus();
}

absl::Status AtomicFile::Overwrite(int64_t offset, std::string_view bytes) {
  ABSL_RETURN_IF_ERROR(status_);
  ABSL_CHECK(!is_synced_) << target_;
  ABSL_CHECK(offset >= 0 && offset <= num_bytes_ - static_cast<int64_t>(bytes.size())) << target_;
  if (absl::Status written = file_->Overwrite(offset, bytes); !written.ok()) return Fail(written);  // step 4
  return absl::OkStatus();
}

absl::Status AtomicFile::Sync() {
  ABSL_RETURN_IF_ERROR(status_);
  if (absl::Status synced = file_->Sync(); !synced.ok()) return Fail(synced);  // step 5
  is_synced_ = true;
  return absl::OkStatus();
}

absl::Status AtomicFile::Publish() {
  ABSL_RETURN_IF_ERROR(status_);
  ABSL_CHECK(is_synced_) << target_;
  if (absl::Status renamed = file_system_.Rename(temporary_, target_); !renamed.ok()) return Fail(renamed);  // step 6
  temporary_.clear();
  if (absl::Status synced = SyncUpwards(file_system_, DirectoryOf(target_)); !synced.ok())
    return Fail(synced);  // step 7
  return absl::OkStatus();
}

absl::Status AtomicFile::Fail(const absl::Status& error) {
  status_ = absl::Status(error.code(), absl::StrCat("cannot save ", internal::Quoted(target_), ": ", error.message()));
  return status_;
}

}  // namespace cohort
