// File: atomic_file.h
//
// AtomicFile: makes or replaces a file so that at every instant, and after a loss of power, its path holds the old file
// or the new one, whole. The protocol and its reasons stand in the .cc.

#ifndef COHORT_CHECKPOINT_ATOMIC_FILE_H_
#define COHORT_CHECKPOINT_ATOMIC_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort {

// Create, Append and Overwrite as often as need be, Sync, Publish. Until Publish the target is untouched; destroying the object
// without it leaves no trace but for directories that were made. Local and blocking, every method. Not thread-safe.
//
// The new file has the permissions of the one it replaces, or what the umask leaves of rw-rw-rw-. It belongs to whoever
// runs this process; access lists and other attributes are not carried over, and a hard link elsewhere keeps the old
// contents.
//
// Errors, of all methods: those of FileSystem, with the target, the cause and the bytes written so far. After one,
// every later method returns it again.
class AtomicFile final : public WritableFile {
 public:
  // Makes missing directories, removes temporary files of dead processes beside `target`, and makes one of our own.
  // `target` comes from ResolveTarget. `file_system` must outlive the object.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(FileSystem& file_system, std::string_view target);

  ~AtomicFile() override;

  absl::Status Append(std::string_view bytes) override;
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override;
  int64_t num_bytes() const override { return num_bytes_; }

  // Blocks until all bytes are on the disk. Nothing may be written afterwards.
  absl::Status Sync();

  // Only after Sync. Puts the file in the target's place, and blocks until that is on the disk too. After an error of
  // the rename the target holds what it held before; after one of a later step it holds the new file, which a loss of
  // power may undo.
  absl::Status Publish();

 private:
  AtomicFile(FileSystem& file_system, std::string_view target) : file_system_(file_system), target_(target) {}

  absl::Status MakeTemporary();
  absl::Status Fail(const absl::Status& error);

  FileSystem& file_system_;
  const std::string target_;
  std::string temporary_;  // empty when there is none
  std::unique_ptr<OutputFile> file_;
  int64_t num_bytes_ = 0;
  bool is_synced_ = false;
  absl::Status status_;  // the first error
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_ATOMIC_FILE_H_
