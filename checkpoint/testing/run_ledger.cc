#include "cohort/checkpoint/testing/run_ledger.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"

namespace cohort::testing {
namespace {

constexpr std::string_view kState = "state.pt";
constexpr int64_t kMaxBytes = int64_t{1} << 30;

std::string NameOf(const CheckpointInfo& checkpoint) { return checkpoint.path.substr(checkpoint.path.rfind('/') + 1); }

// The names of those that may not go under any policy, found without PlanRetention: the newest by sequence, the pinned,
// and the best by each metric that the policy names.
std::set<std::string> Untouchable(const std::vector<CheckpointInfo>& all, const RetentionPolicy& policy) {
  std::set<std::string> names;
  const CheckpointInfo* newest = nullptr;
  for (const CheckpointInfo& checkpoint : all) {
    if (checkpoint.pinned) names.insert(NameOf(checkpoint));
    if (newest == nullptr || checkpoint.sequence > newest->sequence) newest = &checkpoint;
  }
  if (newest != nullptr) names.insert(NameOf(*newest));
  for (const KeepBest& by : policy.best) {
    const double sign = by.order == KeepBest::Order::kLeast ? 1 : -1;
    const CheckpointInfo* best = nullptr;
    for (const CheckpointInfo& checkpoint : all) {
      const auto value = checkpoint.metrics.find(by.metric);
      if (value == checkpoint.metrics.end()) continue;
      if (best == nullptr || sign * value->second < sign * best->metrics.at(by.metric)) best = &checkpoint;
    }
    if (best != nullptr) names.insert(NameOf(*best));
  }
  return names;
}

}  // namespace

std::string TestPayload(int64_t step, int64_t save, size_t num_bytes) {
  std::string contents = absl::StrFormat("%d %d %d ", step, save, num_bytes);
  ABSL_CHECK_LE(contents.size(), num_bytes);
  // Of another save every byte is another one, but by chance; and no piece of a power of two can be taken for another.
  constexpr uint32_t kPatternBytes = 997;
  const auto seed = static_cast<uint32_t>(step * 1'000'003 + save);
  std::string pattern;
  for (uint32_t i = 0; i < kPatternBytes; ++i) {
    pattern.push_back(static_cast<char>('!' + ((i + seed) * 2654435761u >> 16) % 90));
  }
  while (contents.size() < num_bytes) contents.append(pattern, 0, num_bytes - contents.size());
  return contents;
}

std::optional<std::string> PayloadName(std::string_view contents) {
  long long step, save, num_bytes;
  const std::string head(contents.substr(0, 64));
  if (std::sscanf(head.c_str(), "%lld %lld %lld ", &step, &save, &num_bytes) != 3) return std::nullopt;
  if (num_bytes < 64 || static_cast<size_t>(num_bytes) != contents.size()) return std::nullopt;
  if (TestPayload(step, save, num_bytes) != contents) return std::nullopt;
  return absl::StrCat("step ", step, ", save ", save);
}

RunLedger::RunLedger(FileSystem& file_system, std::string directory, RetentionPolicy policy)
    : directory_(std::move(directory)), policy_(std::move(policy)) {
  Violations violations;
  absl::StatusOr<Entries> before = Read(file_system, violations);
  ABSL_CHECK(before.ok() && violations.empty()) << before.status() << absl::StrJoin(violations, "\n");
  before_ = *std::move(before);
  latest_ = Latest(file_system);
}

int64_t RunLedger::last_step() const {
  int64_t last = 0;
  for (const auto& [name, entry] : before_) last = std::max(last, entry.info.step);
  return last;
}

std::optional<std::string> RunLedger::Latest(FileSystem& file_system) const {
  absl::StatusOr<std::string> target = file_system.ReadLink(directory_ + "/latest");
  return target.ok() ? std::optional(*std::move(target)) : std::nullopt;
}

absl::StatusOr<RunLedger::Entries> RunLedger::Read(FileSystem& file_system, Violations& violations) const {
  const absl::StatusOr<RunDirectory> run = ReadRunDirectory(file_system, directory_);
  if (absl::IsNotFound(run.status())) return Entries();
  ABSL_RETURN_IF_ERROR(run.status());
  for (const SkippedCheckpoint& skipped : run->skipped) {
    violations.push_back(absl::StrCat("I1: ", skipped.name, " is skipped: ", skipped.reason));
  }
  Entries entries;
  for (const CheckpointInfo& checkpoint : run->checkpoints) {
    std::string state;
    for (const CheckpointFile& file : checkpoint.files) {
      absl::StatusOr<std::string> contents =
          file_system.ReadSmallFile(absl::StrCat(checkpoint.path, "/", file.name), kMaxBytes);
      if (!contents.ok() || static_cast<int64_t>(contents->size()) != file.num_bytes ||
          internal::Crc32(*contents) != file.crc32) {
        violations.push_back(
            absl::StrCat("I1: ", NameOf(checkpoint), "/", file.name, " is not what its manifest says"));
      } else if (file.name == kState) {
        state = *std::move(contents);
      }
    }
    const std::optional<std::string> name = PayloadName(state);
    if (!name.has_value() || !name->starts_with(absl::StrCat("step ", checkpoint.step, ","))) {
      violations.push_back(absl::StrCat("I1: ", NameOf(checkpoint), " holds ", name.value_or("something torn")));
    }
    entries[NameOf(checkpoint)] = {checkpoint, std::move(state)};
  }
  return entries;
}

RunLedger::Violations RunLedger::Check(FileSystem& file_system, int64_t step, int64_t save, bool saved) const {
  Violations violations;
  const absl::StatusOr<Entries> now = Read(file_system, violations);
  if (!now.ok()) return {absl::StrCat("I1: ", now.status().ToString())};
  CheckContents(*now, step, save, saved, violations);
  CheckKept(*now, violations);
  CheckLatest(file_system, *now, saved, violations);
  return violations;
}

RunLedger::Violations RunLedger::CheckTidy(FileSystem& file_system, int64_t step, int64_t save) const {
  Violations violations;
  const absl::StatusOr<Entries> now = Read(file_system, violations);
  if (!now.ok()) return {absl::StrCat("I1: ", now.status().ToString())};
  CheckContents(*now, step, save, true, violations);
  CheckKept(*now, violations);
  CheckLatest(file_system, *now, true, violations);
  CheckNames(file_system, *now, violations);
  return violations;
}

void RunLedger::CheckContents(const Entries& now, int64_t step, int64_t save, bool saved,
                              Violations& violations) const {
  int64_t newest_before = 0;
  for (const auto& [name, entry] : before_) newest_before = std::max(newest_before, entry.info.sequence);
  bool is_there = false;
  for (const auto& [name, entry] : now) {
    const auto old = before_.find(name);
    if (old != before_.end()) {
      if (entry.contents != old->second.contents) violations.push_back(absl::StrCat("I1: ", name, " has changed"));
      continue;
    }
    is_there = true;
    if (PayloadName(entry.contents) != absl::StrCat("step ", step, ", save ", save)) {
      violations.push_back(absl::StrCat("I1: ", name, " is new, and nobody saved it"));
    }
    if (entry.info.sequence <= newest_before) violations.push_back(absl::StrCat("I2: ", name, " is not the newest"));
  }
  if (saved && !is_there) violations.push_back("I2: saved, but it is not there");
}

std::vector<CheckpointInfo> RunLedger::Union(const Entries& now) const {
  std::vector<CheckpointInfo> all;
  for (const auto& [name, entry] : before_) all.push_back(entry.info);
  for (const auto& [name, entry] : now) {
    if (!before_.contains(name)) all.push_back(entry.info);
  }
  return all;
}

void RunLedger::CheckKept(const Entries& now, Violations& violations) const {
  const std::vector<CheckpointInfo> all = Union(now);
  std::set<std::string> may_go;
  if (all.size() > before_.size()) {  // the new one is there
    for (const size_t i : PlanRetention(all, policy_)) may_go.insert(NameOf(all[i]));
  }
  for (const std::string& name : Untouchable(all, policy_)) may_go.erase(name);
  for (const auto& [name, entry] : before_) {
    if (!now.contains(name) && !may_go.contains(name)) violations.push_back(absl::StrCat("I4: ", name, " is gone"));
  }
}

void RunLedger::CheckLatest(FileSystem& file_system, const Entries& now, bool saved, Violations& violations) const {
  const std::optional<std::string> target = Latest(file_system);
  if (saved && (!target.has_value() || before_.contains(*target))) {
    violations.push_back("I3: saved, but \"latest\" does not lead there");
  }
  const bool led_somewhere = latest_.has_value() && before_.contains(*latest_);
  if (!led_somewhere && target == latest_) return;
  if (!target.has_value()) {
    violations.push_back("I3: \"latest\" is gone");
  } else if (!now.contains(*target)) {
    violations.push_back(absl::StrCat("I3: \"latest\" leads to ", *target, ", which is no checkpoint"));
  }
}

void RunLedger::CheckNames(FileSystem& file_system, const Entries& now, Violations& violations) const {
  const std::vector<CheckpointInfo> all = Union(now);
  std::set<std::string> wanted = {"run.json", "latest", ".cohort-lock"};
  for (const CheckpointInfo& checkpoint : all) wanted.insert(NameOf(checkpoint));
  for (const size_t i : PlanRetention(all, policy_)) wanted.erase(NameOf(all[i]));
  const absl::StatusOr<std::vector<std::string>> list = file_system.List(directory_);
  std::set<std::string> found;
  if (list.ok()) found.insert(list->begin(), list->end());
  found.erase("notes");
  if (found == wanted) return;
  violations.push_back(
      absl::StrCat("I5: there are ", absl::StrJoin(found, ", "), "; there should be ", absl::StrJoin(wanted, ", ")));
}

}  // namespace cohort::testing
