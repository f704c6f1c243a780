// File: checkpoint_manager.h
//
// CheckpointManager: what a training loop holds. It saves by step into a directory, finds what to go on from, keeps what it
// was told to keep, and never leaves less to go on from than there was.
//
//   absl::StatusOr<std::unique_ptr<CheckpointManager>> manager =
//       CheckpointManager::Open(group.get(), {.directory = "run", .retention = {.newest = 3}});
//   absl::StatusOr<std::optional<CheckpointInfo>> from = (*manager)->Resume([&](const CheckpointInfo& checkpoint) {
//     return LoadTrainingState(*group, checkpoint.path + "/state.pt", *model, *optimizer).status();
//   });
//   ...
//   absl::StatusOr<CheckpointReport> saved = (*manager)->Save({.step = step, .metrics = {{"loss", loss}}}, "state.pt", write);

#ifndef COHORT_CHECKPOINT_CHECKPOINT_MANAGER_H_
#define COHORT_CHECKPOINT_CHECKPOINT_MANAGER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/nullability.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_request.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

class FileSystem;

namespace internal {
class ReportFile;
class RunWriter;
}  // namespace internal

// Every rank makes one, and calls its collective methods in the same order. Not thread-safe.
class CheckpointManager {
 public:
  // Brings the state of a checkpoint into this rank, and returns the same on every rank (LoadTrainingState does).
  using LoadCheckpoint = absl::FunctionRef<absl::Status(const CheckpointInfo& checkpoint)>;

  // Collective. Locks the directory against other jobs and looks what it holds; what saves of dead jobs of this host left
  // unfinished is removed. `group` and `file_system` must outlive the manager; a null file system is the machine's own.
  //
  // Errors, the same on all ranks, as "rank K: TEXT"; nothing in the directory has been changed:
  //   InvalidArgument     an option is out of range (names it); the directory or a part of its path is a file; run.json is
  //                       damaged or of a later version
  //   FailedPrecondition  another job has the directory (quotes who); it belongs to another run or its newest checkpoint is of
  //                       another model (names both); "latest" is a file or a directory
  //   and those of FileSystem and ProcessGroup
  static absl::StatusOr<std::unique_ptr<CheckpointManager>> Open(ProcessGroup* absl_nonnull group,
                                                                 CheckpointManagerOptions options,
                                                                 FileSystem* absl_nullable file_system = nullptr);

  CheckpointManager(const CheckpointManager&) = delete;
  CheckpointManager& operator=(const CheckpointManager&) = delete;
  // Local. Waits for removals, and lets go of the lock.
  ~CheckpointManager();

  // ---- Local ----

  const std::string& directory() const;  // absolute
  const std::string& run_id() const;     // empty before the first save of a new run
  // The one saved last; nullopt if there is none. The same on all ranks.
  const std::optional<CheckpointInfo>& newest() const;
  // Saves that failed since Open. Such a save takes nothing away; the next one is tried as if it had not been.
  int64_t num_failed_saves() const;

  // ---- Collective ----

  // Saves a checkpoint of one or several files, as MainOnlySaver::Save does: one process writes, and nobody returns before
  // the checkpoint is durable or the save has failed. The directory shows it only then, whole, and "latest" leads to
  // it. What the retention policy does not keep is removed afterwards, in a thread of the main rank.
  //
  // On failure all checkpoints are as they were. Exception: if only "latest" could not be moved, the checkpoint is there,
  // and the error says so.
  //
  // Errors, the same on all ranks, as "rank K: TEXT":
  //   InvalidArgument     the step is not more than the last one; a metric that the policy goes by is missing; a name is not
  //                       allowed; no payload. Nothing is touched
  //   FailedPrecondition  "latest" has become a file or a directory
  //   and those of MainOnlySaver::Save
  absl::StatusOr<CheckpointReport> Save(const CheckpointRequest& request, absl::Span<const CheckpointPayload> payloads,
                                        const absl::Status& ready = absl::OkStatus());
  absl::StatusOr<CheckpointReport> Save(const CheckpointRequest& request, std::string_view name, WritePayload write,
                                        const absl::Status& ready = absl::OkStatus());

  // Calls `load`, on every rank, with the newest complete checkpoint, and returns it; nullopt if there is none. One whose
  // files turn out to be damaged is passed over, with a warning, and the one before it is tried: that needs a `load` that
  // changes nothing before it has verified what it reads.
  //
  // Errors, the same on all ranks: what `load` returned, if the checkpoint is as it was saved; DataLoss if there is something
  // named as a checkpoint, and none of it can be resumed from (damaged, incomplete, of a later version, unreadable): says what
  // and why; and those of ProcessGroup.
  absl::StatusOr<std::optional<CheckpointInfo>> Resume(LoadCheckpoint load, VerifyDepth depth = VerifyDepth::kManifest);

  // The same with the one of `step` and no other.
  //
  // Errors, the same on all ranks: also NotFound (lists the steps that are there); DataLoss if it is damaged or not complete,
  // saying why.
  absl::StatusOr<CheckpointInfo> ResumeFrom(int64_t step, LoadCheckpoint load,
                                            VerifyDepth depth = VerifyDepth::kManifest);

  // Waits for removals. The save before it may then be looked at with nothing going on.
  absl::Status WaitForRemovals();

 private:
  CheckpointManager(ProcessGroup* absl_nonnull group, CheckpointManagerOptions options);
  absl::StatusOr<CheckpointReport> TryToSave(const CheckpointRequest& request,
                                             absl::Span<const CheckpointPayload> payloads, const absl::Status& ready);
  // Calls `load` everywhere. On failure `damage` says what is wrong with the checkpoint's files, or nothing if they are whole.
  absl::Status Load(const CheckpointInfo& checkpoint, LoadCheckpoint load, VerifyDepth depth, std::string& damage);
  void Warn();  // of what the main rank's part has noticed
  void Warn(std::string_view warning);

  ProcessGroup* absl_nonnull group_;
  CheckpointManagerOptions options_;
  std::unique_ptr<internal::RunWriter> main_;     // the main rank's; null elsewhere
  std::unique_ptr<internal::ReportFile> report_;  // the main rank's, if there is to be one
  std::string directory_;
  std::string run_id_;
  std::optional<CheckpointInfo> newest_;
  int64_t last_step_ = -1;
  int64_t num_failed_saves_ = 0;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_CHECKPOINT_MANAGER_H_
