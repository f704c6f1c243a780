// File: manager_save.h
//
// What a job does that saves once through CheckpointManager, for tests that disturb it and look with RunLedger.

#ifndef COHORT_CHECKPOINT_TESTING_MANAGER_SAVE_H_
#define COHORT_CHECKPOINT_TESTING_MANAGER_SAVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/runtime/process_group.h"

namespace cohort::testing {

// The checkpoint of `step`: "state.pt", which is TestPayload(step, save, num_bytes), and the metric "loss".
struct ManagerSave {
  std::string directory;
  RetentionPolicy policy;
  int64_t step = 0;
  int64_t save = 0;
  size_t num_bytes = 64;
  double loss = 0;
  bool pin = false;
};

// Collective. Opens the directory as that of the run "run". Warnings are dropped.
absl::StatusOr<std::unique_ptr<CheckpointManager>> OpenManager(ProcessGroup& group, FileSystem& file_system,
                                                               const ManagerSave& save);

// Collective. Writes the file in several pieces, of which the first is known last.
absl::StatusOr<CheckpointReport> Save(CheckpointManager& manager, const ManagerSave& save);

// Collective. Both, and waits for the removals.
absl::Status OpenAndSave(ProcessGroup& group, FileSystem& file_system, const ManagerSave& save);

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_MANAGER_SAVE_H_
