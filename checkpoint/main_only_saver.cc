// The protocol.
//
//  1  All ranks meet, each with its `ready`; the main rank brings the absolute path that it has settled on, or why it
//     cannot save there. So the path is settled once, all ranks report the same one, and a bad one has touched nothing.
//     A rank that is not ready, or asks for another path (it is the operation's name), is known before the first byte
//     is written.
//  2  The main rank writes a temporary file and syncs it (atomic_file.cc). Whatever happens there, and whatever the
//     callback throws, becomes a Status: a main rank that left by an exception would keep the others waiting.
//  3  The main rank looks at the clock and, if the others still wait, puts the file in its place and syncs that.
//  4  All ranks meet again, with a longer timeout; the main rank brings its figures or its error. Nobody returns before
//     the file is durable, so whoever returns may open it; and everybody returns the same.
//
// Time. The others give up at a time of their own, and the main rank cannot know that it has come: it must not replace
// a file that they take for unchanged. So it stops by itself at Options::timeout, and they wait a grace longer. It
// looks at every Append and last before the rename, not after it: from then on the save counts. What remains is a main
// rank that is stopped for longer than the grace between that look and the end of the rename; no number of further
// meetings would close that gap.

#include "cohort/checkpoint/main_only_saver.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/atomic_file.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/time_limit.h"
#include "cohort/checkpoint/target_path.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/main_only.h"
#include "cohort/runtime/process_group.h"

namespace cohort {
namespace {

using internal::Quoted;
using internal::Stopwatch;
using internal::TimedFile;
using internal::TimeLimit;

// Steps 2 and 3.
absl::StatusOr<SaveReport> WriteDurably(FileSystem& file_system, const std::string& target, absl::Duration timeout,
                                        WritePayload write) {
  const TimeLimit limit(timeout);
  const Stopwatch write_clock;
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(file_system, target));
  TimedFile payload(*file, limit);
  ABSL_RETURN_IF_ERROR(write(payload));
  const absl::Duration write_time = write_clock.Elapsed();

  const Stopwatch sync_clock;
  ABSL_RETURN_IF_ERROR(file->Sync());
  ABSL_RETURN_IF_ERROR(limit.Check());
  ABSL_RETURN_IF_ERROR(file->Publish());
  return SaveReport{.num_bytes = file->num_bytes(), .write_time = write_time, .sync_time = sync_clock.Elapsed()};
}

// The report as the main rank sends it: bytes and nanoseconds.
std::string Encode(const SaveReport& report) {
  return absl::StrCat(report.num_bytes, " ", absl::ToInt64Nanoseconds(report.write_time), " ",
                      absl::ToInt64Nanoseconds(report.sync_time));
}

absl::StatusOr<SaveReport> Decode(std::string_view figures) {
  int64_t num_bytes, write_ns, sync_ns;
  const std::vector<std::string_view> fields = absl::StrSplit(figures, ' ');
  if (fields.size() != 3 || !absl::SimpleAtoi(fields[0], &num_bytes) || !absl::SimpleAtoi(fields[1], &write_ns) ||
      !absl::SimpleAtoi(fields[2], &sync_ns)) {
    return absl::InternalError(absl::StrCat("rank 0 sent a malformed report of its save: ", Quoted(figures)));
  }
  return SaveReport{
      .num_bytes = num_bytes, .write_time = absl::Nanoseconds(write_ns), .sync_time = absl::Nanoseconds(sync_ns)};
}

// The part of a path that goes into the name of an operation. Longer ones differ from each other only in how they fail.
std::string_view Named(std::string_view path) { return path.substr(0, 4096); }

}  // namespace

MainOnlySaver::MainOnlySaver(ProcessGroup* absl_nonnull group, Options options, FileSystem* absl_nullable file_system)
    : group_(group),
      options_(std::move(options)),
      file_system_(file_system == nullptr ? FileSystem::Posix() : file_system) {}

absl::StatusOr<SaveReport> MainOnlySaver::Save(std::string_view path, WritePayload write, const absl::Status& ready) {
  const Stopwatch blocked;
  absl::StatusOr<std::string> mine = "";
  if (group_->is_main()) mine = SettleTarget(path);
  if (!ready.ok()) mine = ready;
  ABSL_ASSIGN_OR_RETURN(const std::string target,
                        group_->BroadcastBytes(absl::StrCat("save ", Named(path)), std::move(mine)));

  absl::StatusOr<std::string> outcome = "";
  if (group_->is_main()) {
    std::string figures;
    const absl::Status written = InvokeUser([&]() -> absl::Status {
      ABSL_ASSIGN_OR_RETURN(const SaveReport report, WriteDurably(*file_system_, target, options_.timeout, write));
      figures = Encode(report);
      return absl::OkStatus();
    });
    outcome = written.ok() ? absl::StatusOr<std::string>(std::move(figures)) : written;
  }
  const absl::StatusOr<std::string> figures =
      group_->BroadcastBytes(absl::StrCat("saved ", Named(path)), outcome, internal::WithGrace(options_.timeout));
  // If the others gave up, the group can only say that it is broken. The main rank knows more.
  if (!outcome.ok() && figures.status().code() != outcome.status().code()) {
    return absl::Status(outcome.status().code(), absl::StrCat("rank 0: ", outcome.status().message()));
  }
  ABSL_RETURN_IF_ERROR(figures.status());
  ABSL_ASSIGN_OR_RETURN(SaveReport report, Decode(*figures));
  report.path = target;
  report.blocked = blocked.Elapsed();
  return report;
}

absl::StatusOr<std::string> MainOnlySaver::SettleTarget(std::string_view path) const {
  ABSL_RETURN_IF_ERROR(internal::CheckSaveTimeout(options_.timeout));
  ABSL_ASSIGN_OR_RETURN(const std::string absolute, AbsolutePath(path, options_.base_directory));
  return ResolveTarget(*file_system_, absolute);
}

}  // namespace cohort
