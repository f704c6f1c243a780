// File: file_system.h
//
// FileSystem: what the durable-replace protocol (atomic_file.cc) asks of a disk, and no more. It is the seam at which
// tests let a disk fill up, break, or lose power.

#ifndef COHORT_CHECKPOINT_FILE_SYSTEM_H_
#define COHORT_CHECKPOINT_FILE_SYSTEM_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort {

enum class FileType { kRegular, kDirectory, kSymlink, kOther };

struct FileInfo {
  FileType type = FileType::kRegular;
  int permissions = 0;    // the lower nine bits of the mode: rwxrwxrwx
  int64_t num_bytes = 0;  // of a regular file
};

// A new file that this process writes. Its destructor closes it; until then the file counts as in use
// (RemoveIfAbandoned).
class OutputFile {
 public:
  virtual ~OutputFile() = default;

  // Appends all of `bytes`. After an error the file's contents are unspecified.
  virtual absl::Status Append(std::string_view bytes) = 0;

  // Replaces bytes that were appended before. After an error the file's contents are unspecified.
  virtual absl::Status Overwrite(int64_t offset, std::string_view bytes) = 0;

  // Blocks until all that was written is on the disk. Reports also what closing the file would. An error is final: the
  // kernel may have dropped the bytes, so a second try could succeed without them.
  virtual absl::Status Sync() = 0;
};

// A file that is locked: as long as the object lives no other process gets the lock. The kernel lets go of it when this
// process ends, however it ends.
class FileLock {
 public:
  virtual ~FileLock() = default;

  // Whether the file is still what stands at the path that it was locked at. If not, others can lock what does.
  virtual bool IsInPlace() const = 0;
};

// Local, every method; may block as long as the disk does. Paths are absolute. Thread-safe.
//
// Errors, of all methods: the operating system's, as `OPERATION "PATH": CAUSE`:
//   InvalidArgument    a name is too long, or something in the path is not a directory
//   NotFound           the file or a directory above it does not exist
//   AlreadyExists      it exists
//   PermissionDenied   permissions, or a read-only file system
//   ResourceExhausted  disk full, quota, size limit, too many open files
//   Unavailable        I/O error
//   and what absl::ErrnoToStatusCode says of any other cause
class FileSystem {
 public:
  // The machine's own. Lives for ever.
  static FileSystem* absl_nonnull Posix();

  virtual ~FileSystem() = default;

  // What stands at `path` itself: a symlink is not followed.
  virtual absl::StatusOr<FileInfo> Inspect(std::string_view path) = 0;

  virtual absl::StatusOr<std::string> ReadLink(std::string_view path) = 0;

  // The names in a directory, without "." and "..", in no order.
  virtual absl::StatusOr<std::vector<std::string>> List(std::string_view directory) = 0;

  // The contents of a regular file, also through symlinks. Never waits for whoever writes a pipe.
  //
  // Errors: also InvalidArgument if it is no regular file; OutOfRange if it has more than `max_bytes`.
  virtual absl::StatusOr<std::string> ReadSmallFile(std::string_view path, int64_t max_bytes) = 0;

  // Makes a new file and marks it as in use. Never opens one that exists, nor follows a symlink. Without `permissions`
  // it gets what the umask leaves of rw-rw-rw-.
  //
  // Errors: also Aborted: another process took it for abandoned before it was marked. Try again with another name.
  virtual absl::StatusOr<std::unique_ptr<OutputFile>> Create(std::string_view path, std::optional<int> permissions) = 0;

  // Puts `from` in the place of `to`, at one instant.
  virtual absl::Status Rename(std::string_view from, std::string_view to) = 0;

  // Removes a file, or a symlink itself; not a directory. The directory it is in must be no symlink: nothing is removed
  // through one, also if it takes the directory's place at the last moment.
  virtual absl::Status Remove(std::string_view path) = 0;

  // Removes a regular file that some process made by Create and has not lived to remove.
  //
  // Errors: also FailedPrecondition: its process lives, or the file system cannot tell.
  virtual absl::Status RemoveIfAbandoned(std::string_view path) = 0;

  virtual absl::Status MakeDirectory(std::string_view path) = 0;

  // Removes a directory that is empty.
  //
  // Errors: also FailedPrecondition if it is not.
  virtual absl::Status RemoveDirectory(std::string_view path) = 0;

  // Makes a new symlink at `path` that says `target`. Durable, what it says included, once its directory is synced.
  virtual absl::Status MakeSymlink(std::string_view target, std::string_view path) = 0;

  // Locks the file at `path` against every other Lock, of this process as well, and writes `owner` into it, for people
  // and for the message of who comes second; a disk too full for that is no error. Makes the file if there is none;
  // never follows a symlink. The file stays when the lock goes. Does not wait.
  //
  // Errors: also FailedPrecondition if it is locked: quotes what its owner wrote; Unimplemented if the file system has
  // no locks; InvalidArgument if `path` is no regular file.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(std::string_view path, std::string_view owner) = 0;

  // Blocks until the directory's entries (what was made, renamed and removed in it) are on the disk. OK on file systems
  // that have no such operation.
  virtual absl::Status SyncDirectory(std::string_view path) = 0;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_FILE_SYSTEM_H_
