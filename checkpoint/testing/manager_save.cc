#include "cohort/checkpoint/testing/manager_save.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/testing/run_ledger.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

namespace cohort::testing {
namespace {

absl::Status WriteInPieces(WritableFile& file, std::string_view contents) {
  constexpr size_t kHead = 10;
  constexpr size_t kPiece = 64 << 10;
  const std::string_view head = contents.substr(0, kHead);
  contents.remove_prefix(kHead);
  ABSL_RETURN_IF_ERROR(file.Reserve(kHead));
  for (; !contents.empty(); contents.remove_prefix(std::min(contents.size(), kPiece))) {
    ABSL_RETURN_IF_ERROR(file.Append(contents.substr(0, kPiece)));
  }
  return file.Overwrite(0, head);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CheckpointManager>> OpenManager(ProcessGroup& group, FileSystem& file_system,
                                                               const ManagerSave& save) {
  return CheckpointManager::Open(
      &group,
      {.directory = save.directory, .run_id = "run", .retention = save.policy, .on_warning = [](std::string_view) {}},
      &file_system);
}

absl::StatusOr<CheckpointReport> Save(CheckpointManager& manager, const ManagerSave& save) {
  const std::string contents = TestPayload(save.step, save.save, save.num_bytes);
  return manager.Save({.step = save.step, .metrics = {{"loss", save.loss}}, .pin = save.pin}, "state.pt",
                      [&](WritableFile& file) { return WriteInPieces(file, contents); });
}

absl::Status OpenAndSave(ProcessGroup& group, FileSystem& file_system, const ManagerSave& save) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointManager> manager, OpenManager(group, file_system, save));
  return Save(*manager, save).status();
}

}  // namespace cohort::testing
