// ls, verify, latest and prune of runs.

#include "cohort/tools/ckpt/run_commands.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/prune_run.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/tools/ckpt/console.h"
#include "cohort/tools/ckpt/text.h"

namespace cohort::ckpt {
namespace {

std::string NameOf(const CheckpointInfo& checkpoint) { return checkpoint.path.substr(checkpoint.path.rfind('/') + 1); }

// A name in a directory, as a person may type it.
std::string PathText(std::string_view directory, std::string_view name) {
  while (directory.size() > 1 && directory.back() == '/') directory.remove_suffix(1);
  return NameText(absl::StrCat(directory == "/" ? "" : directory, "/", name));
}

std::string Count(size_t number, std::string_view what) {
  return absl::StrCat(number, " ", what, number == 1 ? "" : "s");
}

int64_t NumBytes(const CheckpointInfo& checkpoint) {
  int64_t total = 0;
  for (const CheckpointFile& file : checkpoint.files) total += file.num_bytes;
  return total;
}

std::string TotalBytesText(const std::vector<CheckpointInfo>& checkpoints) {
  double total = 0;  // checkpoints that are lies may add up to more than an integer holds
  for (const CheckpointInfo& checkpoint : checkpoints) total += static_cast<double>(NumBytes(checkpoint));
  return BytesText(static_cast<int64_t>(std::min(total, 9e18)));
}

// In the largest unit of which there are two or more.
std::string AgeText(absl::Duration age) {
  if (age < absl::ZeroDuration()) return "in the future";
  if (age < absl::Minutes(2)) return Count(absl::ToInt64Seconds(age), "second");
  if (age < absl::Hours(2)) return Count(absl::ToInt64Minutes(age), "minute");
  if (age < absl::Hours(48)) return Count(absl::ToInt64Hours(age), "hour");
  return Count(absl::ToInt64Hours(age) / 24, "day");
}

std::string MetricsText(const CheckpointInfo& checkpoint) {
  if (checkpoint.metrics.empty()) return "-";
  return Shortened(absl::StrJoin(checkpoint.metrics, " ", [](std::string* out, const auto& metric) {
    absl::StrAppend(out, NameText(metric.first), "=", FloatText(metric.second));
  }));
}

// Where "latest" leads: the name in the directory of the run, or what else it says, or nothing.
std::string Latest(const std::string& run) {
  std::error_code error;
  return std::filesystem::read_symlink(run + "/latest", error).string();
}

// What is wrong with "latest".
std::string LatestTrouble(const RunDirectory& run, const std::string& latest) {
  const auto& all = run.checkpoints;
  if (all.empty() || latest == NameOf(all.front())) return "";
  if (latest.empty()) return "there is no link \"latest\"";
  const bool is_there = std::any_of(all.begin(), all.end(),
                                    [&](const CheckpointInfo& checkpoint) { return NameOf(checkpoint) == latest; });
  return absl::StrCat("latest leads to ", NameText(latest), is_there ? ", and " : ", which is no complete checkpoint; ",
                      NameOf(all.front()), " was saved last");
}

// The oldest comes first: what matters most stands where a person looks first, above the prompt.
std::string CheckpointsText(const RunDirectory& run, const RetentionPolicy& policy) {
  const std::string latest = Latest(run.path);
  const std::vector<size_t> plan = PlanRetention(run.checkpoints, policy);
  const std::set<size_t> goes(plan.begin(), plan.end());
  Table table({0, 2});
  std::vector<std::string> head = {"STEP", "NAME", "SIZE", "AGE", "METRICS", "MARKS"};
  if (policy.newest.has_value()) head.push_back("RETENTION");
  if (!run.checkpoints.empty()) table.Add(std::move(head));
  const absl::Time now = absl::Now();
  for (size_t i = run.checkpoints.size(); i-- > 0;) {
    const CheckpointInfo& checkpoint = run.checkpoints[i];
    std::vector<std::string_view> marks;
    if (NameOf(checkpoint) == latest) marks.push_back("latest");
    if (checkpoint.pinned) marks.push_back("pinned");
    std::vector<std::string> row = {absl::StrCat(checkpoint.step),   NameOf(checkpoint),
                                    BytesText(NumBytes(checkpoint)), AgeText(now - checkpoint.saved),
                                    MetricsText(checkpoint),         marks.empty() ? "-" : absl::StrJoin(marks, " ")};
    if (policy.newest.has_value()) row.push_back(goes.contains(i) ? "goes" : "stays");
    table.Add(std::move(row));
  }
  return table.Text();
}

// Why it could not be found out.
int Trouble(std::string_view message) {
  Complain(message);
  return kExitTrouble;
}

// What VerifyCheckpoint says of a file, without the directory, which is said before it.
std::string WithoutDirectory(const absl::Status& status, const CheckpointInfo& checkpoint) {
  return absl::StrReplaceAll(status.message(), {{checkpoint.path + "/", ""}});
}

int Verify(const CheckpointInfo& checkpoint, const std::string& name) {
  absl::Status status;
  {
    ProgressBar bar(name);
    status = VerifyCheckpoint(checkpoint, [&](int64_t done, int64_t total) { bar.Show(done, total); });
  }
  std::error_code error;
  if (status.ok()) {
    Print(absl::StrCat(name, ": ok\n"));
  } else if (absl::IsDataLoss(status)) {
    Print(absl::StrCat(name, ": ", internal::Printable(WithoutDirectory(status, checkpoint)), "\n"));
    return kExitBad;
  } else if (!std::filesystem::exists(checkpoint.path, error) && !error) {
    Print(absl::StrCat(name, ": has been removed meanwhile\n"));
  } else {
    return Trouble(absl::StrCat(name, ": ", WithoutDirectory(status, checkpoint)));
  }
  return kExitGood;
}

// A metric that no checkpoint has is a slip of the pen, and would leave none of the best.
absl::Status CheckMetricsAreThere(const RunDirectory& run, const RetentionPolicy& policy) {
  std::set<std::string> names;
  for (const CheckpointInfo& checkpoint : run.checkpoints) {
    for (const auto& [name, value] : checkpoint.metrics) names.insert(name);
  }
  for (const KeepBest& best : policy.best) {
    if (run.checkpoints.empty() || names.contains(best.metric)) continue;
    const auto append = [](std::string* out, const std::string& name) { absl::StrAppend(out, NameText(name)); };
    return absl::InvalidArgumentError(
        absl::StrCat("--keep-best=", NameText(best.metric), ": no checkpoint has such a metric; there ",
                     names.empty() ? "is none" : absl::StrCat("are ", absl::StrJoin(names, ", ", append))));
  }
  return absl::OkStatus();
}

int DryRun(const std::string& path, const RunDirectory& run, const RetentionPolicy& policy) {
  std::vector<CheckpointInfo> goes;
  for (const size_t i : PlanRetention(run.checkpoints, policy)) {
    goes.push_back(run.checkpoints[i]);
    Print(absl::StrCat("would remove ", PathText(path, NameOf(goes.back())), "\n"));
  }
  Print(absl::StrCat("would remove ", goes.size(), " of ", Count(run.checkpoints.size(), "checkpoint"), ", ",
                     TotalBytesText(goes), "\n"));
  return kExitGood;
}

}  // namespace

DirectoryKind KindOf(const std::string& path) {
  std::error_code error;
  const auto is_file = [&](std::string_view name) {
    return std::filesystem::is_regular_file(absl::StrCat(path, "/", name), error);
  };
  const std::string name = std::filesystem::path(absl::StripSuffix(path, "/")).filename().string();
  const bool is_named_so = absl::StartsWith(name, "step_") && std::filesystem::is_directory(path, error);
  if (is_file("manifest.json") || is_named_so) return DirectoryKind::kCheckpoint;
  // A job that has not saved yet, or could not, has left no more than its lock.
  if (is_file("run.json") || is_file(".cohort-lock")) return DirectoryKind::kRun;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (!absl::StartsWith(entry->path().filename().string(), "step_")) continue;
    std::error_code ignored;
    if (entry->is_directory(ignored)) return DirectoryKind::kRun;
  }
  return DirectoryKind::kOther;
}

int ListRun(const std::string& path, const RetentionPolicy& policy) {
  const absl::StatusOr<RunDirectory> run = ReadRunDirectory(path);
  if (!run.ok()) return Trouble(run.status().message());
  std::string out = absl::StrCat("run ", run->run_id.empty() ? "of no name" : NameText(run->run_id), ": ",
                                 Count(run->checkpoints.size(), "checkpoint"), ", ", TotalBytesText(run->checkpoints),
                                 "\n", CheckpointsText(*run, policy));
  const std::string trouble = LatestTrouble(*run, Latest(run->path));
  if (!trouble.empty()) absl::StrAppend(&out, trouble, "\n");
  Table skipped;
  for (const SkippedCheckpoint& one : run->skipped) skipped.Add({NameText(one.name), internal::Printable(one.reason)});
  if (!skipped.empty()) absl::StrAppend(&out, "skipped\n", skipped.Text("  "));
  Print(out);
  return skipped.empty() && trouble.empty() ? kExitGood : kExitBad;
}

int VerifyRun(const std::string& path) {
  const absl::StatusOr<RunDirectory> run = ReadRunDirectory(path);
  if (!run.ok()) return Trouble(run.status().message());
  int exit_code = kExitGood;
  for (auto checkpoint = run->checkpoints.rbegin(); checkpoint != run->checkpoints.rend(); ++checkpoint) {
    exit_code = std::max(exit_code, Verify(*checkpoint, PathText(path, NameOf(*checkpoint))));
  }
  for (const SkippedCheckpoint& skipped : run->skipped) {
    Print(absl::StrCat(PathText(path, skipped.name), ": ", internal::Printable(skipped.reason), "\n"));
    exit_code = std::max(exit_code, kExitBad);
  }
  if (!run->checkpoints.empty()) return exit_code;
  Print(absl::StrCat(NameText(path), ": no complete checkpoint\n"));
  return std::max(exit_code, kExitBad);
}

int VerifyOneCheckpoint(const std::string& path) {
  const absl::StatusOr<CheckpointInfo> checkpoint = ReadCheckpoint(path);
  if (checkpoint.ok()) return Verify(*checkpoint, NameText(path));
  if (!absl::IsDataLoss(checkpoint.status())) return Trouble(checkpoint.status().message());
  // The path stands before it, in quotes and absolute.
  const std::string_view message = checkpoint.status().message();
  Print(absl::StrCat(NameText(path), ": ", internal::Printable(message.substr(message.find("\": ") + 3)), "\n"));
  return kExitBad;
}

int PrintLatest(const std::string& path) {
  const absl::StatusOr<RunDirectory> run = ReadRunDirectory(path);
  if (!run.ok()) return Trouble(run.status().message());
  if (run->checkpoints.empty()) {
    Complain(absl::StrCat(NameText(path), ": no complete checkpoint"));
    return kExitBad;
  }
  // As it is, for $(ckpt latest DIR): what may be strange in it the person who typed DIR knows.
  Print(absl::StrCat(run->checkpoints.front().path, "\n"));
  return kExitGood;
}

int Prune(const std::string& path, const RetentionPolicy& policy, bool dry_run) {
  if (KindOf(path) != DirectoryKind::kRun) {
    return Trouble(absl::StrCat(NameText(path), ": no run: there is no run.json in it, and no directory step_..."));
  }
  const absl::StatusOr<RunDirectory> run = ReadRunDirectory(path);
  if (!run.ok()) return Trouble(run.status().message());
  if (const absl::Status known = CheckMetricsAreThere(*run, policy); !known.ok()) return Trouble(known.message());
  if (dry_run) return DryRun(path, *run, policy);
  std::vector<CheckpointInfo> gone;
  bool is_said = false;
  const absl::Status pruned = internal::PruneRun(
      run->path, policy,
      [&](const CheckpointInfo& checkpoint, const absl::Status& removed) {
        const std::string name = PathText(path, NameOf(checkpoint));
        if (removed.ok()) {
          Print(absl::StrCat("removed ", name, "\n"));
          gone.push_back(checkpoint);
        } else {
          Complain(absl::StrCat(name, ": ", removed.message()));
          is_said = true;
        }
      },
      Complain);
  if (!pruned.ok() && !is_said) return Trouble(pruned.message());
  Print(absl::StrCat("removed ", Count(gone.size(), "checkpoint"), ", ", TotalBytesText(gone), "\n"));
  return pruned.ok() ? kExitGood : kExitTrouble;
}

}  // namespace cohort::ckpt
