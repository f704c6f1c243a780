// File: checkpoint_writer.h
//
// CheckpointWriter: one checkpoint in a run directory, from nothing to the place where everybody sees it. The protocol and its
// reasons stand in the .cc.

#ifndef COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_WRITER_H_
#define COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_WRITER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/time_limit.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

// Create, AddFile for each, Sync, Publish. Until Publish nobody takes it for a checkpoint; destroying the object without it
// removes what was written. Local and blocking, every method. Not thread-safe. Errors: those of FileSystem and what else is
// said; after one the object is good for nothing.
class CheckpointWriter {
 public:
  // `info` is what the manifest will say; its path, files and `saved` are found out here. `directory`, absolute, is a run
  // directory that exists. All must outlive the object.
  static absl::StatusOr<std::unique_ptr<CheckpointWriter>> Create(FileSystem& file_system, std::string_view directory,
                                                                  const TimeLimit& limit, CheckpointInfo info);
  ~CheckpointWriter();

  // Errors: also those of `write`, and DeadlineExceeded.
  absl::Status AddFile(std::string_view name, absl::FunctionRef<absl::Status(WritableFile& file)> write);

  // Writes the manifest, and blocks until it and all files are on the disk.
  absl::Status Sync();

  // Only after Sync. Gives it its name, and blocks until that is on the disk too. After an error of a step behind the rename
  // is_published() is true: the checkpoint is there, and a loss of power may undo it.
  //
  // Errors: also DeadlineExceeded, before the rename.
  absl::Status Publish();

  bool is_published() const { return is_published_; }
  const CheckpointInfo& info() const { return info_; }

 private:
  class File;

  CheckpointWriter(FileSystem& file_system, std::string_view directory, const TimeLimit& limit, CheckpointInfo info);
  absl::StatusOr<std::unique_ptr<OutputFile>> CreateFile(std::string_view name);
  absl::StatusOr<std::string> FreeName() const;

  FileSystem& file_system_;
  const std::string directory_;
  const TimeLimit& limit_;
  CheckpointInfo info_;
  std::string temporary_;                           // its path until it is published
  std::vector<std::string> names_;                  // of what is in it
  std::vector<std::unique_ptr<OutputFile>> files_;  // open until they are synced
  bool is_published_ = false;
};

// Makes "latest" in the run directory `directory` lead to the checkpoint `name` in it, at one instant, and blocks until that is
// on the disk. The checkpoint must be on the disk already, or a loss of power could leave "latest" leading nowhere.
absl::Status PointLatestAt(FileSystem& file_system, std::string_view directory, std::string_view name);

// FailedPrecondition if "latest" is something that PointLatestAt would destroy: anything but a symlink.
absl::Status CheckLatest(FileSystem& file_system, std::string_view directory);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_WRITER_H_
