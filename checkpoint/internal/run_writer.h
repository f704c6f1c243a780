// File: run_writer.h
//
// RunWriter: the main rank's part of CheckpointManager, which talks to no other rank.

#ifndef COHORT_CHECKPOINT_INTERNAL_RUN_WRITER_H_
#define COHORT_CHECKPOINT_INTERNAL_RUN_WRITER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_request.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/removals.h"
#include "cohort/checkpoint/run_directory.h"

namespace cohort::internal {

// A run directory that this process has locked, and what it holds. Local and blocking, every method. Not thread-safe. Errors:
// as CheckpointManager says.
class RunWriter {
 public:
  // `world_size` goes into the manifests. `file_system` must outlive the object.
  static absl::StatusOr<std::unique_ptr<RunWriter>> Open(FileSystem& file_system, CheckpointManagerOptions options,
                                                         int world_size);

  // Complete and of this run and model; the newest first.
  absl::Span<const CheckpointInfo> checkpoints() const { return run_.checkpoints; }
  absl::Span<const SkippedCheckpoint> skipped() const { return run_.skipped; }
  const std::string& directory() const { return run_.path; }
  const std::string& run_id() const { return run_.run_id; }  // empty before the first save of a new run

  // Whether Save may be called with these. Touches nothing.
  absl::Status Check(const CheckpointRequest& request, absl::Span<const CheckpointPayload> payloads) const;

  // Saves, and starts to remove what the policy does not keep. After an error checkpoints() says whether it is there all the
  // same.
  absl::StatusOr<CheckpointReport> Save(const CheckpointRequest& request, absl::Span<const CheckpointPayload> payloads);

  // The checkpoint at `path` turned out to be damaged: from now on it is one of skipped(), and never removed.
  void Skip(std::string_view path, std::string_view reason);

  // Blocks until what Save started to remove is gone.
  void WaitForRemovals();

  // What was noticed since the last call.
  std::vector<std::string> TakeWarnings();

 private:
  RunWriter(FileSystem& file_system, CheckpointManagerOptions options, int world_size, std::string directory);

  absl::Status Read();
  absl::Status KeepLock();
  absl::Status BeginRun();
  std::vector<std::string> Retire();  // their names
  std::vector<size_t> PlanRemovals();

  FileSystem& file_system_;
  const CheckpointManagerOptions options_;
  const int world_size_;
  RunDirectory run_;
  // Of all that is there, of what Skip took out as well: who looks without reading the files still counts that.
  int64_t last_sequence_ = 0;
  bool has_run_file_ = false;
  std::unique_ptr<FileLock> lock_;
  std::vector<std::string> warnings_;
  std::unique_ptr<Removals> removals_;  // before the lock goes they end
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_RUN_WRITER_H_
