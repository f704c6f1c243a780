// File: main_only_saver.h
//
// MainOnlySaver: every rank calls Save, one process writes, and every rank knows how it went.
//
//   cohort::MainOnlySaver saver(group.get());
//   absl::StatusOr<cohort::SaveReport> report = saver.Save("checkpoints/model.pth", [&](cohort::WritableFile& file) {
//     return cohort::WriteTorchFile(state, file);
//   });

#ifndef COHORT_CHECKPOINT_MAIN_ONLY_SAVER_H_
#define COHORT_CHECKPOINT_MAIN_ONLY_SAVER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/base/nullability.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

class FileSystem;

// How a save went. Equal on all ranks but for `blocked`.
struct SaveReport {
  std::string path;  // absolute, symlink-free as far as it existed before
  int64_t num_bytes = 0;
  // Of the main rank:
  absl::Duration write_time;  // the callback and the system calls it made
  absl::Duration sync_time;   // fsync of the file, rename, fsync of the directories
  // Of this rank: from the call of Save to its return.
  absl::Duration blocked;
};

// Writes the payload of a save into `file`. Called on the main rank only. What it throws becomes an error on all ranks.
using WritePayload = absl::FunctionRef<absl::Status(WritableFile& file)>;

class MainOnlySaver {
 public:
  struct Options {
    // How long the other ranks wait for the main rank to write. Not the group's timeout: a long write is not a hang.
    absl::Duration timeout = absl::Minutes(30);
    // What a relative path is relative to. Empty: BUILD_WORKING_DIRECTORY if set (where the person who typed `bazel
    // run` stands), else the main rank's working directory.
    std::string base_directory;
  };

  // `group` and `file_system` must outlive the saver; a null file system is the machine's own.
  explicit MainOnlySaver(ProcessGroup* absl_nonnull group) : MainOnlySaver(group, Options()) {}
  MainOnlySaver(ProcessGroup* absl_nonnull group, Options options, FileSystem* absl_nullable file_system = nullptr);

  // Collective: every rank, the same `path`. Blocks until the file is durable or the save has failed, at most
  // Options::timeout. On success `path` holds exactly the payload, on a disk that has been told to keep it, and every
  // rank may open it. On failure `path` holds what it held before, and the group is usable unless it is poisoned.
  //
  // `ready` is this rank's own state: a rank that could not prepare its part passes its error, and nothing is written.
  //
  // Missing directories are made. A symlink to a file is kept: its target is replaced.
  //
  // Errors, the same on all ranks:
  //   InvalidArgument     the path is empty, names a directory, or lies under a file
  //   ResourceExhausted   disk full, over quota or over a size limit: the cause, bytes needed so far
  //   PermissionDenied, NotFound, Unavailable, ...  by the operating system's cause
  //   any code            what a rank brought as `ready`, or what `write` returned or threw
  //   DeadlineExceeded    the main rank took longer than the timeout
  //   and those of ProcessGroup
  absl::StatusOr<SaveReport> Save(std::string_view path, WritePayload write,
                                  const absl::Status& ready = absl::OkStatus());

 private:
  ProcessGroup* absl_nonnull group_;
  Options options_;
  FileSystem* absl_nonnull file_system_;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_MAIN_ONLY_SAVER_H_
