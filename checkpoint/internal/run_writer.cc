#include "cohort/checkpoint/internal/run_writer.h"

#include <sys/random.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/atomic_file.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/checkpoint_writer.h"
#include "cohort/checkpoint/internal/directories.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/remove_checkpoint.h"
#include "cohort/checkpoint/internal/report_file.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/internal/run_lock.h"
#include "cohort/checkpoint/internal/save_log.h"
#include "cohort/checkpoint/internal/temporary_name.h"
#include "cohort/checkpoint/internal/time_limit.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/checkpoint/target_path.h"

namespace cohort::internal {
namespace {

// Which directory `path` means: absolute and free of symlinks. It need not exist.
absl::StatusOr<std::string> SettleDirectory(FileSystem& file_system, std::string_view path) {
  if (path.empty()) return absl::InvalidArgumentError("the checkpoint directory is \"\"; it must be a path");
  ABSL_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(path));
  // A file in it says more of a path that cannot be than the directory does.
  const absl::StatusOr<std::string> inside = ResolveTarget(file_system, absl::StrCat(absolute, "/", kRunFileName));
  if (!inside.ok()) {
    return absl::Status(inside.status().code(),
                        absl::StrCat("the checkpoint directory ", Quoted(path), ": ", inside.status().message()));
  }
  return std::string(DirectoryOf(*inside));
}

absl::Status CheckOptions(const CheckpointManagerOptions& options) {
  ABSL_RETURN_IF_ERROR(CheckSaveTimeout(options.timeout));
  ABSL_RETURN_IF_ERROR(CheckRetentionPolicy(options.retention));
  ABSL_RETURN_IF_ERROR(options.run_id.empty() ? absl::OkStatus() : CheckRunId(options.run_id));
  return CheckModel(options.model);
}

// A path that leads nowhere is a warning at each save.
absl::Status CheckReport(std::string_view directory, const std::string& report) {
  if (report.empty()) return absl::OkStatus();
  ABSL_RETURN_IF_ERROR(CheckIsNotOfRun(directory, "the report of saves", report));
  const absl::Status usable = ReportFile(report, kSaveLogFirstKey).Check();
  return absl::IsInvalidArgument(usable)
             ? absl::Status(usable.code(), absl::StrCat("the report of saves: ", usable.message()))
             : absl::OkStatus();
}

// A new run's.
absl::StatusOr<std::string> NewRunId(const CheckpointManagerOptions& options) {
  if (!options.run_id.empty()) return options.run_id;
  const char* const launched = std::getenv("TORCHELASTIC_RUN_ID");
  if (launched != nullptr && *launched != '\0' && std::string_view(launched) != "none") {
    const absl::Status valid = CheckRunId(launched);
    if (valid.ok()) return launched;
    return absl::Status(valid.code(), absl::StrCat("TORCHELASTIC_RUN_ID: ", valid.message()));
  }
  uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != sizeof(random)) return absl::InternalError("getrandom failed");
  return absl::StrFormat("%016x", random);
}

// In its run directory.
std::string NameOf(const CheckpointInfo& checkpoint) { return checkpoint.path.substr(checkpoint.path.rfind('/') + 1); }

bool IsOfModel(const CheckpointInfo& checkpoint, const std::string& model) {
  return model.empty() || checkpoint.model.empty() || checkpoint.model == model;
}

}  // namespace

RunWriter::RunWriter(FileSystem& file_system, CheckpointManagerOptions options, int world_size, std::string directory)
    : file_system_(file_system),
      options_(std::move(options)),
      world_size_(world_size),
      run_{.path = std::move(directory)},
      removals_(std::make_unique<Removals>(file_system, run_.path)) {}

absl::StatusOr<std::unique_ptr<RunWriter>> RunWriter::Open(FileSystem& file_system, CheckpointManagerOptions options,
                                                           int world_size) {
  ABSL_RETURN_IF_ERROR(CheckOptions(options));
  ABSL_ASSIGN_OR_RETURN(std::string directory, SettleDirectory(file_system, options.directory));
  ABSL_RETURN_IF_ERROR(CheckReport(directory, options.report_path));
  auto writer = absl::WrapUnique(new RunWriter(file_system, std::move(options), world_size, directory));
  // Before anything is made, and again once nobody else can change it.
  ABSL_RETURN_IF_ERROR(writer->Read());
  if (writer->run_.run_id.empty()) {
    ABSL_RETURN_IF_ERROR(NewRunId(writer->options_).status());  // and not only at the first save
  }
  ABSL_RETURN_IF_ERROR(MakeDirectories(file_system, directory));
  ABSL_ASSIGN_OR_RETURN(writer->lock_, LockRunDirectory(file_system, directory, "saves"));
  if (writer->lock_ == nullptr) {
    writer->warnings_.push_back(absl::StrCat(Quoted(directory),
                                             " is on a file system without locks: nothing keeps a second "
                                             "job from saving there"));
  } else if (const absl::Status removed = RemoveUnfinished(file_system, directory); !removed.ok()) {
    writer->warnings_.push_back(
        absl::StrCat("what an earlier job left unfinished is still there: ", removed.message()));
  }
  ABSL_RETURN_IF_ERROR(writer->Read());
  return writer;
}

// Looks what the directory holds, and whether it is this run's.
absl::Status RunWriter::Read() {
  absl::StatusOr<RunDirectory> found = ReadRunDirectory(file_system_, run_.path);
  if (absl::IsNotFound(found.status())) return absl::OkStatus();  // a new one
  ABSL_RETURN_IF_ERROR(found.status());
  ABSL_RETURN_IF_ERROR(CheckLatest(file_system_, run_.path));
  const std::string& mine = run_.run_id.empty() ? options_.run_id : run_.run_id;
  if (!mine.empty() && !found->run_id.empty() && mine != found->run_id) {
    return absl::FailedPreconditionError(absl::StrCat(Quoted(run_.path), " belongs to the run ", Quoted(found->run_id),
                                                      ", and this one is ", Quoted(mine)));
  }
  auto& all = found->checkpoints;
  for (const CheckpointInfo& checkpoint : all) last_sequence_ = std::max(last_sequence_, checkpoint.sequence);
  if (!all.empty() && !IsOfModel(all.front(), options_.model)) {
    return absl::FailedPreconditionError(
        absl::StrCat(Quoted(run_.path), " holds checkpoints of another model: ", Quoted(all.front().path), " has ",
                     all.front().model, ", and this one has ", options_.model));
  }
  for (const CheckpointInfo& checkpoint : all) {
    if (IsOfModel(checkpoint, options_.model)) continue;
    found->skipped.push_back({.name = NameOf(checkpoint),
                              .step = checkpoint.step,
                              .reason = absl::StrCat("it is of another model, which has ", checkpoint.model)});
  }
  std::erase_if(all, [&](const CheckpointInfo& checkpoint) { return !IsOfModel(checkpoint, options_.model); });
  has_run_file_ = file_system_.Inspect(absl::StrCat(run_.path, "/", kRunFileName)).ok();
  if (found->run_id.empty()) found->run_id = run_.run_id;
  run_ = *std::move(found);
  return absl::OkStatus();
}

// If the directory was moved or removed while this job had it, what is at its path now is taken in the same way, unless
// another job has it or it is another run's.
absl::Status RunWriter::KeepLock() {
  if (lock_ == nullptr || lock_->IsInPlace()) return absl::OkStatus();
  ABSL_RETURN_IF_ERROR(MakeDirectories(file_system_, run_.path));
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<FileLock> lock, LockRunDirectory(file_system_, run_.path, "saves"));
  has_run_file_ = false;
  run_.checkpoints.clear();
  run_.skipped.clear();
  ABSL_RETURN_IF_ERROR(Read());
  lock_ = std::move(lock);
  warnings_.push_back(absl::StrCat(Quoted(run_.path), " was moved or removed while this job saved there; it goes on with ",
                                   run_.checkpoints.empty() ? "a new directory" : "what is there now"));
  return absl::OkStatus();
}

absl::Status RunWriter::Check(const CheckpointRequest& request, absl::Span<const CheckpointPayload> payloads) const {
  if (payloads.empty()) return absl::InvalidArgumentError("a checkpoint needs a file");
  std::set<std::string_view> names;
  for (const CheckpointPayload& payload : payloads) {
    ABSL_RETURN_IF_ERROR(CheckPayloadName(payload.name));
    if (names.insert(payload.name).second) continue;
    return absl::InvalidArgumentError(absl::StrCat("two files of a checkpoint are named ", Quoted(payload.name)));
  }
  for (const auto& [name, value] : request.metrics) ABSL_RETURN_IF_ERROR(CheckMetricName(name));
  for (const KeepBest& best : options_.retention.best) {
    if (request.metrics.contains(best.metric)) continue;
    const auto name = [](std::string* out, const auto& metric) { absl::StrAppend(out, Quoted(metric.first)); };
    return absl::InvalidArgumentError(
        absl::StrCat("the checkpoints that are best by ", Quoted(best.metric),
                     " are to be kept, and this one has no such metric; it has ",
                     request.metrics.empty() ? "none" : absl::StrJoin(request.metrics, ", ", name)));
  }
  if (last_sequence_ >= kMaxSequence) {
    return absl::FailedPreconditionError(absl::StrCat("a checkpoint in ", Quoted(run_.path), " has the sequence ",
                                                      last_sequence_, ", after which there is none; move it away"));
  }
  return CheckLatest(file_system_, run_.path);
}

// run.json, at the first save; or again, if somebody removed it.
absl::Status RunWriter::BeginRun() {
  if (has_run_file_) return absl::OkStatus();
  std::string id = run_.run_id;
  if (id.empty()) {
    ABSL_ASSIGN_OR_RETURN(id, NewRunId(options_));
  }
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                        AtomicFile::Create(file_system_, absl::StrCat(run_.path, "/", kRunFileName)));
  ABSL_RETURN_IF_ERROR(file->Append(EncodeRunFile({.run_id = id, .created = absl::Now()})));
  ABSL_RETURN_IF_ERROR(file->Sync());
  ABSL_RETURN_IF_ERROR(file->Publish());
  run_.run_id = id;
  has_run_file_ = true;
  return absl::OkStatus();
}

absl::StatusOr<CheckpointReport> RunWriter::Save(const CheckpointRequest& request,
                                                 absl::Span<const CheckpointPayload> payloads) {
  const TimeLimit limit(options_.timeout);
  CheckpointReport report;
  const Stopwatch wait;
  WaitForRemovals();
  report.wait_time = wait.Elapsed();

  const Stopwatch write;
  ABSL_RETURN_IF_ERROR(KeepLock());
  ABSL_RETURN_IF_ERROR(BeginRun());
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointWriter> writer,
                        CheckpointWriter::Create(file_system_, run_.path, limit,
                                                 {.step = request.step,
                                                  .sequence = last_sequence_ + 1,
                                                  .run_id = run_.run_id,
                                                  .model = options_.model,
                                                  .world_size = world_size_,
                                                  .metrics = request.metrics,
                                                  .pinned = request.pin}));
  for (const CheckpointPayload& payload : payloads) ABSL_RETURN_IF_ERROR(writer->AddFile(payload.name, payload.write));
  report.write_time = write.Elapsed();

  const Stopwatch sync;
  ABSL_RETURN_IF_ERROR(writer->Sync());
  report.sync_time = sync.Elapsed();

  const Stopwatch publish;
  absl::Status published = writer->Publish();
  if (!writer->is_published()) return published;
  last_sequence_ = writer->info().sequence;
  run_.checkpoints.insert(run_.checkpoints.begin(), writer->info());
  if (published.ok()) published = PointLatestAt(file_system_, run_.path, NameOf(writer->info()));
  if (!published.ok()) {
    return absl::Status(published.code(), absl::StrCat("the checkpoint is at ", Quoted(writer->info().path),
                                                       ", but: ", published.message()));
  }
  report.publish_time = publish.Elapsed();
  report.checkpoint = writer->info();
  for (const CheckpointFile& file : report.checkpoint.files) report.num_bytes += file.num_bytes;
  report.retired = Retire();
  return report;
}

std::vector<size_t> RunWriter::PlanRemovals() {
  for (;;) {
    std::vector<size_t> plan = PlanRetention(run_.checkpoints, options_.retention);
    // A person may have pinned one meanwhile.
    bool is_final = true;
    for (const size_t i : plan) {
      CheckpointInfo& checkpoint = run_.checkpoints[i];
      // If in doubt it stays.
      if (absl::IsNotFound(file_system_.Inspect(absl::StrCat(checkpoint.path, "/", kPinnedName)).status())) continue;
      checkpoint.pinned = true;
      is_final = false;
    }
    if (is_final) return plan;
  }
}

// What the policy does not keep, now that a newer one is durable.
std::vector<std::string> RunWriter::Retire() {
  std::vector<std::string> names;
  std::set<std::string> paths;
  for (const size_t i : PlanRemovals()) {
    paths.insert(run_.checkpoints[i].path);
    names.push_back(NameOf(run_.checkpoints[i]));
  }
  std::erase_if(run_.checkpoints, [&](const CheckpointInfo& checkpoint) { return paths.contains(checkpoint.path); });
  removals_->Start(names);
  return names;
}

void RunWriter::Skip(std::string_view path, std::string_view reason) {
  for (const CheckpointInfo& checkpoint : run_.checkpoints) {
    if (checkpoint.path != path) continue;
    run_.skipped.push_back({.name = NameOf(checkpoint), .step = checkpoint.step, .reason = std::string(reason)});
  }
  std::erase_if(run_.checkpoints, [&](const CheckpointInfo& checkpoint) { return checkpoint.path == path; });
}

void RunWriter::WaitForRemovals() {
  for (const absl::Status& error : removals_->Wait()) {
    // Somebody else removed it.
    if (absl::IsNotFound(error)) continue;
    warnings_.push_back(absl::StrCat("a checkpoint that is no longer kept could not be removed: ", error.message()));
  }
}

std::vector<std::string> RunWriter::TakeWarnings() { return std::exchange(warnings_, {}); }

}  // namespace cohort::internal
