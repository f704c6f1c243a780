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

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

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
  std::string path;  // absolute, and symlink-free as far as it existed before
  int64_t num_bytes = 0;
  // Of the main rank:
  absl::Duration write_time;  // the callback and the system calls it made
  absl::Duration sync_time;   // fsync of the file, rename, fsync of the directories
  // Of this rank: from the call of Save to its return.
  absl::Duration blocked;
};

// Writes the payload of a save into `file`. Called on the main rank only, in the thread that called Save. What it
// throws becomes an error on all ranks. It must not use the group: the other ranks are waiting in it.
using WritePayload = absl::FunctionRef<absl::Status(WritableFile& file)>;

// Thread-safe as far as the group is: one Save at a time.
class MainOnlySaver {
 public:
  struct Options {
    // How long the main rank may write, and the others wait for it. Not the group's timeout: a long write is not a
    // hang. The main rank keeps it, too: it looks at the clock at every Append and before it replaces the old file, and
    // gives up once the time is over. The others wait a tenth longer (half a second at least, 30 s at most), to hear of
    // that instead of giving up themselves.
    absl::Duration timeout = absl::Minutes(30);
    // What a relative path is relative to. Empty: BUILD_WORKING_DIRECTORY if set (where the person who typed `bazel
    // run` stands), else the main rank's working directory. If it is relative itself, it is taken from the working
    // directory.
    std::string base_directory;
  };

  // `group` and `file_system` must outlive the saver; a null file system is the machine's own.
  explicit MainOnlySaver(ProcessGroup* absl_nonnull group) : MainOnlySaver(group, Options()) {}
  MainOnlySaver(ProcessGroup* absl_nonnull group, Options options, FileSystem* absl_nullable file_system = nullptr);

  // Collective: every rank, the same `path`. Blocks until every rank has come, at most the group's timeout, and then
  // until the file is durable or the save has failed, at most Options::timeout. On success `path` holds exactly the
  // payload, on a disk that has been told to keep it, and every rank that sees that disk may open it.
  //
  // On failure `path` holds what it held before, whole. There are two exceptions, in which it may hold the new file,
  // whole: the disk fails to sync the directory after the rename, and a rank dies or gives up while the main rank is
  // past its last look at the clock. The group stays usable, unless a rank died or gave up. Directories that were made
  // stay.
  //
  // `ready` is this rank's own state: a rank that could not prepare its part passes its error, and nothing is written.
  //
  // Missing directories are made, by the main rank. A symlink to a file is kept: its target is replaced, or made if
  // there is none. A file that is replaced hands on its permissions.
  //
  // Errors, the same on all ranks, as "rank K: TEXT":
  //   InvalidArgument    before anything is touched: the path is empty, too long, names a directory or a device, lies
  //                      under a file, or is a loop of symlinks; or Options::timeout is not positive
  //   ResourceExhausted  disk full, over quota or over a size limit: the cause, and how much had been written. (The
  //                      kernel ends a process over its size limit, unless it ignores SIGXFSZ.)
  //   PermissionDenied, Unavailable (I/O error), ...  by the operating system's cause
  //   any code           what a rank brought as `ready`, or what `write` returned or threw
  //   DeadlineExceeded   the main rank took longer than the timeout; says how long it was and what it waited for
  //   and those of ProcessGroup; ranks that ask for different paths are in different operations (FailedPrecondition)
  absl::StatusOr<SaveReport> Save(std::string_view path, WritePayload write,
                                  const absl::Status& ready = absl::OkStatus());

 private:
  absl::StatusOr<std::string> SettleTarget(std::string_view path) const;

  ProcessGroup* absl_nonnull group_;
  Options options_;
  FileSystem* absl_nonnull file_system_;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_MAIN_ONLY_SAVER_H_
