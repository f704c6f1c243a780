// File: run_directory.h
//
// ReadRunDirectory: which checkpoints a run directory holds. For whoever looks and does not save; the layout stands in
// docs/checkpoints.md.

#ifndef COHORT_CHECKPOINT_RUN_DIRECTORY_H_
#define COHORT_CHECKPOINT_RUN_DIRECTORY_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_info.h"

namespace cohort {

class FileSystem;

// Something named like a checkpoint that is none, or not a whole one.
struct SkippedCheckpoint {
  std::string name;             // in the run directory; may hold any bytes
  std::optional<int64_t> step;  // if the name says it
  std::string reason;           // "state.pt has 5 bytes; 120 were saved", ...: fit to be shown
};

struct RunDirectory {
  std::string path;
  // Of run.json; without one, that of all complete checkpoints if they have one id; empty if there is neither.
  std::string run_id;
  // Complete, and of this run; the one saved last comes first. Of two with one `sequence`, of which somebody has copied
  // one, the one of the higher step counts as saved last, of equal steps the one of the longer name.
  std::vector<CheckpointInfo> checkpoints;
  std::vector<SkippedCheckpoint> skipped;  // those of other runs included; by name
};

// Local, read-only, and the same for everybody who looks at the same directory. Complete is a directory, and no symlink
// to one, whose name and manifest are of one step, whose manifest its own checksum vouches for, and which has all files
// with their lengths; the files' contents are not read. What is not named "step_..." is not looked at. Checkpoints may
// come and go meanwhile: what is returned was there at one instant.
//
// `path` is absolute, or relative as MainOnlySaver takes it. In a world of several ranks let the main rank look.
//
// Errors: NotFound if there is no such directory; InvalidArgument if `path` is no directory, run.json is damaged or of
// a later version, or checkpoints of several runs and no run.json are there (names them); Aborted if the directory
// changes too fast to be read; and the operating system's, for what cannot be looked at for want of something (open
// files, memory). A checkpoint that cannot be read (permissions, an I/O error) is skipped.
absl::StatusOr<RunDirectory> ReadRunDirectory(std::string_view path);
absl::StatusOr<RunDirectory> ReadRunDirectory(FileSystem& file_system, std::string_view path);  // `path` is absolute

// Local, read-only. One complete checkpoint, in a directory of any name, such as one that was moved out of its run;
// through symlinks, such as "latest". `path` as above.
//
// Errors: NotFound if there is no such directory; DataLoss if it holds no complete checkpoint: says why; and the
// operating system's.
absl::StatusOr<CheckpointInfo> ReadCheckpoint(std::string_view path);

// Local. Reads every file of a complete checkpoint, by several threads, and compares its checksum. `progress` (may be
// empty) gets the bytes done and in all: in any thread, one call after the other.
//
// Errors: DataLoss: names the file, what it has and what was saved; and the operating system's.
absl::Status VerifyCheckpoint(const CheckpointInfo& checkpoint,
                              const std::function<void(int64_t done, int64_t total)>& progress = {});

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_RUN_DIRECTORY_H_
