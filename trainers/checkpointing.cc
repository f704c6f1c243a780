#include "cohort/trainers/checkpointing.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/log/absl_log.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/save_trigger.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {
namespace {

// The state file among those of a checkpoint.
absl::StatusOr<std::string> StateFileOf(const CheckpointInfo& checkpoint) {
  for (const char* name : {"state.pt", "state.safetensors"}) {
    const bool is_there = std::any_of(checkpoint.files.begin(), checkpoint.files.end(),
                                      [&](const CheckpointFile& file) { return file.name == name; });
    if (is_there) return absl::StrCat(checkpoint.path, "/", name);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      internal::Quoted(checkpoint.path), " has neither state.pt nor state.safetensors: it is another program's"));
}

}  // namespace

Checkpointing::Checkpointing(ProcessGroup* group, CheckpointingOptions options)
    : group_(group), options_(std::move(options)), saver_(group) {}

absl::StatusOr<std::unique_ptr<Checkpointing>> Checkpointing::Open(ProcessGroup* group, CheckpointingOptions options) {
  if (!options.manager.on_warning) {
    options.manager.on_warning = [](std::string_view warning) { ABSL_LOG(WARNING) << warning; };
  }
  auto opened = absl::WrapUnique(new Checkpointing(group, std::move(options)));
  ABSL_ASSIGN_OR_RETURN(opened->trigger_, SaveTrigger::Create(group, opened->options_.trigger));
  ABSL_ASSIGN_OR_RETURN(opened->manager_, CheckpointManager::Open(group, opened->options_.manager));
  return opened;
}

absl::StatusOr<std::string> Checkpointing::LoadFrom(ProcessGroup& group, std::string_view path, LoadFile load) {
  constexpr int kMaxTries = 100;
  std::string before;
  for (int i = 1;; ++i) {
    // The whole path may be too long for the name of an operation.
    ABSL_ASSIGN_OR_RETURN(std::string file, group.BroadcastBytes(absl::StrCat("resume from ", path.substr(0, 4096)),
                                                                 group.is_main() ? LocateStateFile(path)
                                                                                 : absl::StatusOr<std::string>("")));
    const absl::Status loaded = load(file);
    if (loaded.ok()) return file;
    // A job that saves there may have removed it since: then there is a newer one.
    if (!absl::IsNotFound(loaded) || file == before || i == kMaxTries) return loaded;
    before = std::move(file);
  }
}

absl::StatusOr<std::optional<std::string>> Checkpointing::Resume(const ResumeFrom& from, LoadFile load) {
  if (from.kind == ResumeFrom::Kind::kNone) return std::nullopt;
  const auto load_checkpoint = [&](const CheckpointInfo& checkpoint) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const std::string file, StateFileOf(checkpoint));
    return load(file);
  };
  if (from.kind == ResumeFrom::Kind::kStep) {
    ABSL_ASSIGN_OR_RETURN(const CheckpointInfo loaded, manager_->ResumeFrom(from.step, load_checkpoint));
    return loaded.path;
  }
  ABSL_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> loaded, manager_->Resume(load_checkpoint));
  if (!loaded.has_value()) return std::nullopt;
  return loaded->path;
}

absl::StatusOr<std::optional<CheckpointReport>> Checkpointing::Save(const CheckpointRequest& request,
                                                                    std::string_view name,
                                                                    const absl::StatusOr<Payload>& payload) {
  const auto write = [&](WritableFile& file) { return (*payload)(file); };
  absl::StatusOr<CheckpointReport> saved = manager_->Save(request, name, write, payload.status());
  last_save_ = payload.ok() ? saved.status() : payload.status();
  if (last_save_.ok()) return *std::move(saved);
  ABSL_RETURN_IF_ERROR(Bear(absl::StrCat("step ", request.step), last_save_));
  return std::nullopt;
}

absl::StatusOr<std::optional<SaveReport>> Checkpointing::Export(std::string_view name, const Payload& payload) {
  absl::StatusOr<SaveReport> saved = saver_.Save(absl::StrCat(directory(), "/", name), payload);
  last_export_ = saved.status();
  if (saved.ok()) return *std::move(saved);
  ABSL_RETURN_IF_ERROR(Bear(name, last_export_));
  return std::nullopt;
}

absl::Status Checkpointing::Bear(std::string_view what, const absl::Status& failure) {
  ++num_failures_;
  if (options_.stop_if_save_fails || !group_->Agree("after a save that failed", absl::OkStatus()).ok()) return failure;
  if (group_->is_main()) {
    options_.manager.on_warning(absl::StrCat("the save of ", what, " failed: ", failure.message(), "; failed so far: ",
                                             num_failures_, "; that alone does not end the run"));
  }
  return absl::OkStatus();
}

}  // namespace cohort
