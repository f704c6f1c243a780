// What the main rank decides and does alone stands in internal/run_writer.cc; here the ranks meet. Saving:
//
//  1  All ranks meet, each with its `ready`; the main rank brings whether the request is one that it can do. The step is in the
//     operation's name: ranks that are at different steps find out before anything is touched.
//  2  The main rank writes, publishes, and starts to remove what is no longer kept (internal/checkpoint_writer.cc).
//  3  All meet again; the main rank brings the report, or its error. So nobody returns before the checkpoint is durable, and all
//     return the same.
//
// Resuming:
//
//  1  The main rank says which checkpoint.
//  2  Every rank loads it, and all meet with how that went.
//  3  If it failed anywhere, the main rank reads the files and compares their checksums with the manifest, and says what it found.
//     Only damage is a reason to go on with another checkpoint: an error that has another cause (another model, no memory) would be
//     hidden by going back.

#include "cohort/checkpoint/checkpoint_manager.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/log/absl_log.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_request.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/report_file.h"
#include "cohort/checkpoint/internal/run_writer.h"
#include "cohort/checkpoint/internal/save_log.h"
#include "cohort/checkpoint/internal/time_limit.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/checkpoint/target_path.h"
#include "cohort/runtime/main_only.h"
#include "cohort/runtime/process_group.h"

namespace cohort {
namespace {

using internal::Quoted;

// The part of a path that goes into the name of an operation.
std::string_view Named(std::string_view path) { return path.substr(0, 4096); }

// A message from the main rank: numbers, a text of any bytes, and the rest.
struct Message {
  std::vector<int64_t> numbers;
  std::string text;
  std::string rest;
};

std::string Encode(Message message) {
  message.numbers.push_back(static_cast<int64_t>(message.text.size()));
  return absl::StrCat(absl::StrJoin(message.numbers, " "), "\n", message.text, message.rest);
}

absl::StatusOr<Message> Decode(std::string_view bytes, size_t num_numbers) {
  const absl::Status malformed = absl::InternalError(absl::StrCat("rank 0 sent a malformed message: ", Quoted(bytes)));
  const size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return malformed;
  Message message;
  for (const std::string_view field : absl::StrSplit(bytes.substr(0, end), ' ')) {
    if (!absl::SimpleAtoi(field, &message.numbers.emplace_back())) return malformed;
  }
  bytes.remove_prefix(end + 1);
  const int64_t size = message.numbers.back();
  message.numbers.pop_back();
  if (message.numbers.size() != num_numbers || size < 0 || size > static_cast<int64_t>(bytes.size())) return malformed;
  message.text = bytes.substr(0, size);
  message.rest = bytes.substr(size);
  return message;
}

std::string EncodeCheckpoint(const CheckpointInfo& checkpoint) {
  return Encode(
      {.numbers = {checkpoint.pinned}, .text = checkpoint.path, .rest = internal::EncodeManifest(checkpoint)});
}

absl::StatusOr<CheckpointInfo> DecodeCheckpoint(std::string_view bytes) {
  ABSL_ASSIGN_OR_RETURN(const Message message, Decode(bytes, 1));
  ABSL_ASSIGN_OR_RETURN(CheckpointInfo checkpoint, internal::DecodeManifest(message.rest));
  checkpoint.path = message.text;
  checkpoint.pinned = message.numbers[0] != 0;
  return checkpoint;
}

// An empty text for none.
std::string EncodeOptional(const CheckpointInfo* absl_nullable checkpoint) {
  return checkpoint == nullptr ? "" : EncodeCheckpoint(*checkpoint);
}

absl::StatusOr<std::optional<CheckpointInfo>> DecodeOptional(std::string_view bytes) {
  if (bytes.empty()) return std::nullopt;
  return DecodeCheckpoint(bytes);
}

std::string EncodeReport(const CheckpointReport& report) {
  return Encode({.numbers = {report.num_bytes, absl::ToInt64Nanoseconds(report.wait_time),
                             absl::ToInt64Nanoseconds(report.write_time), absl::ToInt64Nanoseconds(report.sync_time),
                             absl::ToInt64Nanoseconds(report.publish_time)},
                 .text = absl::StrJoin(report.retired, "/"),
                 .rest = EncodeCheckpoint(report.checkpoint)});
}

absl::StatusOr<CheckpointReport> DecodeReport(std::string_view bytes) {
  ABSL_ASSIGN_OR_RETURN(const Message message, Decode(bytes, 5));
  CheckpointReport report{.num_bytes = message.numbers[0],
                          .wait_time = absl::Nanoseconds(message.numbers[1]),
                          .write_time = absl::Nanoseconds(message.numbers[2]),
                          .sync_time = absl::Nanoseconds(message.numbers[3]),
                          .publish_time = absl::Nanoseconds(message.numbers[4])};
  report.retired = absl::StrSplit(message.text, '/', absl::SkipEmpty());
  ABSL_ASSIGN_OR_RETURN(report.checkpoint, DecodeCheckpoint(message.rest));
  return report;
}

// If the other ranks gave up, the group can only say that it is broken. The main rank, which brought `mine`, knows more.
absl::Status WhatIsKnown(const absl::Status& mine, const absl::Status& all) {
  if (mine.ok() || mine.code() == all.code()) return all;
  return absl::Status(mine.code(), absl::StrCat("rank 0: ", mine.message()));
}

// Whether all ranks have this error, as "rank K: TEXT", from a meeting of their own: another one only says "rank 0" before it.
bool IsAgreed(const absl::Status& error) {
  std::string_view text = error.message();
  if (error.ok() || !absl::ConsumePrefix(&text, "rank ")) return false;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  return digits > 0 && absl::StartsWith(text.substr(digits), ": ");
}

std::string SkippedText(std::string_view directory, absl::Span<const SkippedCheckpoint> skipped) {
  constexpr size_t kShown = 10;
  std::string text = absl::StrCat("in ", Quoted(directory), " is skipped: ");
  for (size_t i = 0; i < skipped.size() && i < kShown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", Quoted(skipped[i].name), ": ", skipped[i].reason);
  }
  if (skipped.size() > kShown) absl::StrAppend(&text, "; and ", skipped.size() - kShown, " more");
  return text;
}

// There was something to resume from, and none of it can be: to begin anew is then for a person to decide. OK if there was
// nothing; what is not named as a checkpoint is none of ours.
absl::Status CheckNothingIsLost(const internal::RunWriter& run) {
  const auto is_named = [](const SkippedCheckpoint& skipped) { return skipped.step.has_value(); };
  if (std::none_of(run.skipped().begin(), run.skipped().end(), is_named)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("there is no checkpoint that can be resumed from: ", SkippedText(run.directory(), run.skipped())));
}

// Why there is nothing to resume from at `step`.
absl::Status NoSuchStep(const internal::RunWriter& run, int64_t step) {
  for (const SkippedCheckpoint& skipped : run.skipped()) {
    if (skipped.step != step) continue;
    return absl::DataLossError(
        absl::StrCat("in ", Quoted(run.directory()), ": ", Quoted(skipped.name), ": ", skipped.reason));
  }
  std::set<int64_t> steps;
  for (const CheckpointInfo& checkpoint : run.checkpoints()) steps.insert(checkpoint.step);
  constexpr size_t kShown = 20;
  std::vector<int64_t> last(steps.rbegin(), std::next(steps.rbegin(), std::min(kShown, steps.size())));
  std::reverse(last.begin(), last.end());
  return absl::NotFoundError(absl::StrCat(
      Quoted(run.directory()), " has no checkpoint of step ", step, "; there ",
      last.empty() ? "is none"
                   : absl::StrCat("are ", steps.size() > kShown ? "..., " : "", absl::StrJoin(last, ", "))));
}

}  // namespace

CheckpointManager::CheckpointManager(ProcessGroup* absl_nonnull group, CheckpointManagerOptions options)
    : group_(group), options_(std::move(options)) {}

CheckpointManager::~CheckpointManager() {
  if (main_ == nullptr) return;
  main_->WaitForRemovals();
  Warn();
}

absl::StatusOr<std::unique_ptr<CheckpointManager>> CheckpointManager::Open(ProcessGroup* absl_nonnull group,
                                                                           CheckpointManagerOptions options,
                                                                           FileSystem* absl_nullable file_system) {
  auto manager = absl::WrapUnique(new CheckpointManager(group, std::move(options)));
  const std::string operation = absl::StrCat("open ", Named(manager->options_.directory));
  absl::StatusOr<std::string> found = "";
  if (group->is_main()) {
    const absl::Status opened = InvokeUser([&]() -> absl::Status {
      if (!manager->options_.report_path.empty()) {
        ABSL_ASSIGN_OR_RETURN(manager->options_.report_path, AbsolutePath(manager->options_.report_path));
        manager->report_ =
            std::make_unique<internal::ReportFile>(manager->options_.report_path, internal::kSaveLogFirstKey);
      }
      ABSL_ASSIGN_OR_RETURN(manager->main_,
                            internal::RunWriter::Open(file_system != nullptr ? *file_system : *FileSystem::Posix(),
                                                      manager->options_, group->world_size()));
      const auto checkpoints = manager->main_->checkpoints();
      found = Encode({.text = absl::StrCat(manager->main_->run_id(), "\n", manager->main_->directory()),
                      .rest = EncodeOptional(checkpoints.empty() ? nullptr : &checkpoints.front())});
      return absl::OkStatus();
    });
    if (!opened.ok()) found = opened;
  }
  ABSL_ASSIGN_OR_RETURN(const std::string bytes, group->BroadcastBytes(operation, std::move(found)));
  ABSL_ASSIGN_OR_RETURN(const Message message, Decode(bytes, 0));
  const std::pair<std::string, std::string> names = absl::StrSplit(message.text, absl::MaxSplits('\n', 1));
  manager->run_id_ = names.first;
  manager->directory_ = names.second;
  ABSL_ASSIGN_OR_RETURN(manager->newest_, DecodeOptional(message.rest));
  manager->Warn();
  return manager;
}

const std::string& CheckpointManager::directory() const { return directory_; }
const std::string& CheckpointManager::run_id() const { return run_id_; }
const std::optional<CheckpointInfo>& CheckpointManager::newest() const { return newest_; }
int64_t CheckpointManager::num_failed_saves() const { return num_failed_saves_; }

absl::StatusOr<CheckpointReport> CheckpointManager::Save(const CheckpointRequest& request, std::string_view name,
                                                         WritePayload write, const absl::Status& ready) {
  const CheckpointPayload payload{name, write};
  return Save(request, absl::MakeConstSpan(&payload, 1), ready);
}

absl::StatusOr<CheckpointReport> CheckpointManager::Save(const CheckpointRequest& request,
                                                         absl::Span<const CheckpointPayload> payloads,
                                                         const absl::Status& ready) {
  const internal::Stopwatch blocked;
  absl::StatusOr<CheckpointReport> report = TryToSave(request, payloads, ready);
  const absl::Duration elapsed = blocked.Elapsed();
  if (report.ok()) {
    report->blocked = elapsed;
    last_step_ = request.step;
    run_id_ = report->checkpoint.run_id;
    newest_ = report->checkpoint;
  } else {
    ++num_failed_saves_;
  }
  if (report_ != nullptr) {
    const absl::Status logged = report_->Append(
        internal::SaveLogLine(absl::Now(), request.step, report.status(),
                              report.ok() ? *report : CheckpointReport{.blocked = elapsed}, num_failed_saves_));
    if (!logged.ok()) Warn(absl::StrCat("the report of a save is lost: ", logged.message()));
  }
  Warn();
  return report;
}

absl::StatusOr<CheckpointReport> CheckpointManager::TryToSave(const CheckpointRequest& request,
                                                              absl::Span<const CheckpointPayload> payloads,
                                                              const absl::Status& ready) {
  const std::string what = absl::StrCat("step ", request.step, " in ", Named(options_.directory));
  absl::Status mine = ready;
  if (request.step <= last_step_) {
    mine = absl::InvalidArgumentError(
        absl::StrCat("step ", request.step, " cannot be saved after step ", last_step_, "; steps must grow"));
    if (last_step_ < 0) mine = absl::InvalidArgumentError(absl::StrCat("step ", request.step, ": must be at least 0"));
  } else if (mine.ok() && main_ != nullptr) {
    mine = main_->Check(request, payloads);
  }
  ABSL_RETURN_IF_ERROR(group_->Agree(absl::StrCat("save ", what), mine));

  absl::StatusOr<std::string> outcome = "";
  if (main_ != nullptr) {
    const absl::Status saved = InvokeUser([&]() -> absl::Status {
      ABSL_ASSIGN_OR_RETURN(const CheckpointReport report, main_->Save(request, payloads));
      outcome = EncodeReport(report);
      return absl::OkStatus();
    });
    if (!saved.ok()) outcome = saved;
  }
  const absl::StatusOr<std::string> bytes =
      group_->BroadcastBytes(absl::StrCat("saved ", what), outcome, internal::WithGrace(options_.timeout));
  if (!bytes.ok()) return WhatIsKnown(outcome.status(), bytes.status());
  return DecodeReport(*bytes);
}

absl::Status CheckpointManager::Load(const CheckpointInfo& checkpoint, LoadCheckpoint load, VerifyDepth depth,
                                     std::string& damage) {
  const std::string what = absl::StrCat("step ", checkpoint.step, " from ", Named(options_.directory));
  absl::Status all;
  if (depth == VerifyDepth::kChecksums) {
    all =
        group_->Agree(absl::StrCat("verify ", what), main_ == nullptr ? absl::OkStatus() : VerifyCheckpoint(checkpoint),
                      internal::WithGrace(options_.timeout));
  }
  if (all.ok()) {
    const absl::Status mine = InvokeUser([&] { return load(checkpoint); });
    all = group_->Agree(absl::StrCat("load ", what), mine, internal::WithGrace(options_.timeout));
    if (IsAgreed(mine)) all = mine;
  }
  if (all.ok()) return all;
  absl::StatusOr<std::string> found = "";
  if (main_ != nullptr) {
    const absl::Status whole = VerifyCheckpoint(checkpoint);
    // An error of the disk included: what cannot be read is as good as damaged.
    if (!whole.ok()) found = std::string(whole.message());
  }
  found =
      group_->BroadcastBytes(absl::StrCat("look at ", what), std::move(found), internal::WithGrace(options_.timeout));
  if (found.ok()) damage = *found;
  return all;
}

absl::StatusOr<std::optional<CheckpointInfo>> CheckpointManager::Resume(LoadCheckpoint load, VerifyDepth depth) {
  if (main_ != nullptr && !main_->skipped().empty() && !main_->checkpoints().empty()) {
    Warn(SkippedText(directory_, main_->skipped()));
  }
  for (;;) {
    const CheckpointInfo* candidate = nullptr;
    if (main_ != nullptr && !main_->checkpoints().empty()) candidate = &main_->checkpoints().front();
    absl::StatusOr<std::string> mine = EncodeOptional(candidate);
    if (main_ != nullptr && candidate == nullptr) {
      if (absl::Status lost = CheckNothingIsLost(*main_); !lost.ok()) mine = std::move(lost);
    }
    ABSL_ASSIGN_OR_RETURN(
        const std::string bytes,
        group_->BroadcastBytes(absl::StrCat("resume from ", Named(options_.directory)), std::move(mine)));
    ABSL_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> checkpoint, DecodeOptional(bytes));
    if (!checkpoint.has_value()) return checkpoint;
    std::string damage;
    const absl::Status loaded = Load(*checkpoint, load, depth, damage);
    if (loaded.ok()) {
      last_step_ = checkpoint->step;
      return checkpoint;
    }
    if (damage.empty()) return loaded;
    if (main_ != nullptr) main_->Skip(checkpoint->path, damage);
    Warn(absl::StrCat("step ", checkpoint->step, " is skipped: ", damage));
  }
}

absl::StatusOr<CheckpointInfo> CheckpointManager::ResumeFrom(int64_t step, LoadCheckpoint load, VerifyDepth depth) {
  absl::StatusOr<std::string> mine = "";
  if (main_ != nullptr) {
    const auto all = main_->checkpoints();
    const auto found = std::find_if(all.begin(), all.end(), [&](const CheckpointInfo& c) { return c.step == step; });
    mine = found != all.end() ? absl::StatusOr<std::string>(EncodeCheckpoint(*found)) : NoSuchStep(*main_, step);
  }
  ABSL_ASSIGN_OR_RETURN(const std::string bytes, group_->BroadcastBytes(absl::StrCat("resume from step ", step, " in ",
                                                                                     Named(options_.directory)),
                                                                        std::move(mine)));
  ABSL_ASSIGN_OR_RETURN(CheckpointInfo checkpoint, DecodeCheckpoint(bytes));
  std::string damage;
  const absl::Status loaded = Load(checkpoint, load, depth, damage);
  if (!loaded.ok() && !damage.empty()) return absl::DataLossError(absl::StrCat("step ", step, ": ", damage));
  ABSL_RETURN_IF_ERROR(loaded);
  last_step_ = checkpoint.step;
  return checkpoint;
}

absl::Status CheckpointManager::WaitForRemovals() {
  if (main_ != nullptr) main_->WaitForRemovals();
  Warn();
  return group_->Agree(absl::StrCat("removals in ", Named(options_.directory)), absl::OkStatus(),
                       internal::WithGrace(options_.timeout));
}

void CheckpointManager::Warn() {
  if (main_ == nullptr) return;
  for (const std::string& warning : main_->TakeWarnings()) Warn(warning);
}

void CheckpointManager::Warn(std::string_view warning) {
  if (!group_->is_main()) return;
  if (options_.on_warning) {
    options_.on_warning(warning);
  } else {
    ABSL_LOG(WARNING) << warning;
  }
}

}  // namespace cohort
