// File: checkpointing.h
//
// Checkpointing: how a trainer keeps its checkpoints: when it saves, what it goes on from, and what becomes of a save
// that fails. No LibTorch: how a state is loaded and written is the trainer's.

#ifndef COHORT_TRAINERS_CHECKPOINTING_H_
#define COHORT_TRAINERS_CHECKPOINTING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/save_trigger.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {

struct CheckpointingOptions {
  CheckpointManagerOptions manager;  // on_warning hears of saves that failed, too
  SaveTriggerOptions trigger;
  // A save that fails is the caller's error. Otherwise it is a warning, and the run goes on.
  bool stop_if_save_fails = false;
};

// Every rank makes one and calls its collective methods in the same order. Not thread-safe.
class Checkpointing {
 public:
  // Brings a state file into this rank, and returns the same on every rank.
  using LoadFile = absl::FunctionRef<absl::Status(std::string_view path)>;
  using Payload = std::function<absl::Status(WritableFile& file)>;

  // Collective. `group` must outlive the object. Errors: those of CheckpointManager::Open and SaveTrigger::Create.
  static absl::StatusOr<std::unique_ptr<Checkpointing>> Open(ProcessGroup* group, CheckpointingOptions options);

  // Collective. The state file at a path of ResumeFrom, which need not be in this run's directory and may be loaded
  // before Open has touched that. Returns what was loaded, as LocateStateFile does; the main rank's place counts.
  static absl::StatusOr<std::string> LoadFrom(ProcessGroup& group, std::string_view path, LoadFile load);

  // Collective. Loads what `from`, which is no path, stands for. Returns the directory of the checkpoint; nullopt if
  // there is none to go on from, or none is wanted.
  //
  // Errors, the same on all ranks: those of CheckpointManager::Resume and ResumeFrom.
  absl::StatusOr<std::optional<std::string>> Resume(const ResumeFrom& from, LoadFile load);

  const std::string& directory() const { return manager_->directory(); }  // absolute

  // As SaveTrigger::Decide.
  absl::StatusOr<SaveDecision> Decide(int64_t step) { return trigger_->Decide(step); }

  // Collective. Saves a checkpoint of one file, which `payload` writes; or a file of the name `name` in the run's
  // directory, beside the checkpoints. nullopt if that failed and the run goes on. If `payload` is an error, equal on
  // all ranks, that is how the save fails.
  //
  // Errors, the same on all ranks: those of CheckpointManager::Save and MainOnlySaver::Save, if the group cannot go on
  // after them (a rank died) or if saves must not fail.
  absl::StatusOr<std::optional<CheckpointReport>> Save(const CheckpointRequest& request, std::string_view name,
                                                       const absl::StatusOr<Payload>& payload);
  absl::StatusOr<std::optional<SaveReport>> Export(std::string_view name, const Payload& payload);

  // Local. Saves and exports that failed.
  int64_t num_failures() const { return num_failures_; }
  // Local. How the last Save and the last Export ended: OK if both are on the disk.
  const absl::Status& last_outcome() const { return last_save_.ok() ? last_export_ : last_save_; }

 private:
  Checkpointing(ProcessGroup* group, CheckpointingOptions options);

  // Collective. OK if the run goes on after `failure`, of which it then warns; `failure` if it does not.
  absl::Status Bear(std::string_view what, const absl::Status& failure);

  ProcessGroup* const group_;
  const CheckpointingOptions options_;
  std::unique_ptr<CheckpointManager> manager_;
  std::unique_ptr<SaveTrigger> trigger_;
  MainOnlySaver saver_;
  int64_t num_failures_ = 0;
  absl::Status last_save_, last_export_;
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_CHECKPOINTING_H_
