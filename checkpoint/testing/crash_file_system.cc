#include "cohort/checkpoint/testing/crash_file_system.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"

namespace cohort::testing {
namespace {

constexpr int kRoot = 0;
// A test that leaves more changes unsynced than can be tried has gone wrong.
constexpr int64_t kMaxOutcomes = 1 << 16;

absl::Status NotFound(std::string_view path) {
  return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
}

}  // namespace

class CrashFileSystem::File final : public OutputFile {
 public:
  File(CrashFileSystem& disk, int node, std::string_view path) : disk_(disk), node_(node), path_(path) {}
  ~File() override {
    absl::MutexLock lock(disk_.mutex_);
    disk_.in_use_.erase(node_);
  }

  absl::Status Append(std::string_view bytes) override {
    absl::MutexLock lock(disk_.mutex_);
    return Write(static_cast<int64_t>(disk_.live_[node_].contents.size()), bytes,
                 absl::StrCat("write ", bytes.size(), " bytes to ", path_));
  }

  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    absl::MutexLock lock(disk_.mutex_);
    return Write(offset, bytes, absl::StrCat("overwrite ", bytes.size(), " bytes at ", offset, " of ", path_));
  }

  absl::Status Sync() override {
    absl::MutexLock lock(disk_.mutex_);
    const absl::Status begun = disk_.Begin(absl::StrCat("fsync ", path_));
    if (disk_.power_lost_) return begun;
    begun.ok() ? disk_.Keep(node_) : disk_.Drop(node_);
    return begun;
  }

 private:
  absl::Status Write(int64_t offset, std::string_view bytes, const std::string& description)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_.mutex_) {
    const absl::Status begun = disk_.Begin(description);
    if (disk_.power_lost_) return begun;
    if (!begun.ok()) bytes = bytes.substr(0, bytes.size() / 2);
    disk_.Do({.node = node_, .offset = offset, .bytes = std::string(bytes), .description = description});
    return begun;
  }

  CrashFileSystem& disk_;
  const int node_;
  const std::string path_;
};

CrashFileSystem::CrashFileSystem() {
  const Node root{.is_directory = true, .permissions = 0755};
  live_[kRoot] = root;
  durable_[kRoot] = root;
}

void CrashFileSystem::LosePowerAt(int64_t n) {
  absl::MutexLock lock(mutex_);
  lose_power_at_ = n;
}

void CrashFileSystem::FailAt(int64_t n, absl::Status error) {
  absl::MutexLock lock(mutex_);
  fail_at_[n] = std::move(error);
}

int64_t CrashFileSystem::num_operations() const {
  absl::MutexLock lock(mutex_);
  return static_cast<int64_t>(log_.size());
}

std::string CrashFileSystem::Log() const {
  absl::MutexLock lock(mutex_);
  return absl::StrJoin(log_, "\n");
}

std::optional<std::string> CrashFileSystem::Read(std::string_view path) const {
  absl::MutexLock lock(mutex_);
  const absl::StatusOr<int> node = Find(path);
  if (!node.ok() || live_.at(*node).is_directory) return std::nullopt;
  return live_.at(*node).contents;
}

void CrashFileSystem::ForEachOutcome(absl::FunctionRef<void(CrashFileSystem&, std::string_view)> visit) const {
  Tree durable;
  std::vector<Change> unsynced;
  int next_node;
  {
    absl::MutexLock lock(mutex_);
    durable = durable_;
    unsynced = unsynced_;
    next_node = next_node_;
  }
  // Each change is lost or kept; a write may also be kept in half.
  enum Fate { kLost, kKept, kHalf };
  const auto num_fates = [](const Change& change) { return change.bytes.size() >= 2 ? 3 : 2; };
  int64_t num_outcomes = 1;
  for (const Change& change : unsynced) {
    num_outcomes *= num_fates(change);
    ABSL_CHECK_LE(num_outcomes, kMaxOutcomes) << "too many unsynced changes to try all subsets";
  }
  for (int64_t outcome = 0; outcome < num_outcomes; ++outcome) {
    Tree tree = durable;
    std::vector<std::string> kept;
    int64_t fates = outcome;
    for (Change change : unsynced) {
      const int64_t fate = fates % num_fates(change);
      fates /= num_fates(change);
      if (fate == kLost) continue;
      if (fate == kHalf) change.bytes.resize(change.bytes.size() / 2);
      Apply(change, tree);
      kept.push_back(absl::StrCat(fate == kHalf ? "half of " : "", change.description));
    }
    CrashFileSystem rebooted;
    {
      absl::MutexLock lock(rebooted.mutex_);
      rebooted.durable_ = tree;
      rebooted.live_ = std::move(tree);
      rebooted.next_node_ = next_node;
    }
    visit(rebooted, kept.empty() ? "nothing unsynced" : absl::StrJoin(kept, "; "));
  }
}

absl::StatusOr<FileInfo> CrashFileSystem::Inspect(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(CheckPower());
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path));
  const Node& found = live_.at(node);
  return FileInfo{.type = found.is_directory ? FileType::kDirectory : FileType::kRegular,
                  .permissions = found.permissions};
}

absl::StatusOr<std::string> CrashFileSystem::ReadLink(std::string_view path) {
  return absl::InvalidArgumentError(absl::StrCat(path, " is not a symlink"));
}

absl::StatusOr<std::vector<std::string>> CrashFileSystem::List(std::string_view directory) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(CheckPower());
  ABSL_ASSIGN_OR_RETURN(const int node, Find(directory));
  std::vector<std::string> names;
  for (const auto& [name, child] : live_.at(node).entries) names.push_back(name);
  return names;
}

absl::StatusOr<std::unique_ptr<OutputFile>> CrashFileSystem::Create(std::string_view path,
                                                                    std::optional<int> permissions) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("create ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, Make(path, Node{.permissions = permissions.value_or(0644)}));
  in_use_.insert(node);
  return std::make_unique<File>(*this, node, path);
}

absl::Status CrashFileSystem::Rename(std::string_view from, std::string_view to) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("rename ", from, " to ", to)));
  ABSL_ASSIGN_OR_RETURN(const int node, Find(from));
  ABSL_ASSIGN_OR_RETURN(const auto source, FindPlace(from));
  ABSL_ASSIGN_OR_RETURN(const auto destination, FindPlace(to));
  ABSL_CHECK_EQ(source.first, destination.first) << "a rename between directories is not modelled";
  Do({.node = source.first,
      .removed = source.second,
      .added = destination.second,
      .added_node = node,
      .description = absl::StrCat("rename ", from, " to ", to)});
  return absl::OkStatus();
}

absl::Status CrashFileSystem::Remove(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("remove ", path)));
  return Unlink(path);
}

absl::Status CrashFileSystem::RemoveIfAbandoned(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("remove abandoned ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path));
  if (in_use_.contains(node)) return absl::FailedPreconditionError(absl::StrCat(path, " is in use"));
  return Unlink(path);
}

absl::Status CrashFileSystem::MakeDirectory(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("mkdir ", path)));
  return Make(path, Node{.is_directory = true, .permissions = 0755}).status();
}

absl::Status CrashFileSystem::SyncDirectory(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("fsync directory ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path));
  Keep(node);
  return absl::OkStatus();
}

void CrashFileSystem::Apply(const Change& change, Tree& tree) {
  Node& node = tree[change.node];
  if (!node.is_directory) {
    const size_t end = change.offset + change.bytes.size();
    if (node.contents.size() < end) node.contents.resize(end, '\0');  // what was lost before it reads as zeros
    node.contents.replace(change.offset, change.bytes.size(), change.bytes);
    return;
  }
  if (!change.removed.empty()) node.entries.erase(change.removed);
  if (!change.added.empty()) node.entries[change.added] = change.added_node;
}

void CrashFileSystem::Do(Change change) {
  Apply(change, live_);
  unsynced_.push_back(std::move(change));
}

void CrashFileSystem::Keep(int node) {
  for (const Change& change : unsynced_) {
    if (change.node == node) Apply(change, durable_);
  }
  Drop(node);
}

void CrashFileSystem::Drop(int node) {
  std::erase_if(unsynced_, [&](const Change& change) { return change.node == node; });
}

absl::Status CrashFileSystem::Begin(std::string_view description) {
  const auto n = static_cast<int64_t>(log_.size()) + 1;
  if (lose_power_at_.has_value() && n >= *lose_power_at_) power_lost_ = true;
  ABSL_RETURN_IF_ERROR(CheckPower());
  const auto failure = fail_at_.find(n);
  const absl::Status status = failure == fail_at_.end() ? absl::OkStatus() : failure->second;
  log_.push_back(absl::StrCat(n, ": ", description, status.ok() ? "" : " -- fails"));
  return status;
}

absl::Status CrashFileSystem::CheckPower() const {
  return power_lost_ ? absl::UnavailableError("power lost") : absl::OkStatus();
}

absl::StatusOr<int> CrashFileSystem::Find(std::string_view path) const {
  int node = kRoot;
  for (const std::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    const auto& entries = live_.at(node).entries;
    const auto entry = entries.find(name);
    if (entry == entries.end()) return NotFound(path);
    node = entry->second;
  }
  return node;
}

absl::StatusOr<std::pair<int, std::string>> CrashFileSystem::FindPlace(std::string_view path) const {
  const size_t slash = path.rfind('/');
  ABSL_ASSIGN_OR_RETURN(const int directory, Find(path.substr(0, slash)));
  return std::pair(directory, std::string(path.substr(slash + 1)));
}

absl::StatusOr<int> CrashFileSystem::Make(std::string_view path, Node node) {
  ABSL_ASSIGN_OR_RETURN(const auto place, FindPlace(path));
  if (Find(path).ok()) return absl::AlreadyExistsError(absl::StrCat(path, ": File exists"));
  const int number = next_node_++;
  live_[number] = node;
  durable_[number] = std::move(node);  // unreachable until an entry names it
  Do({.node = place.first,
      .added = place.second,
      .added_node = number,
      .description = absl::StrCat("the name ", path)});
  return number;
}

absl::Status CrashFileSystem::Unlink(std::string_view path) {
  ABSL_RETURN_IF_ERROR(Find(path).status());
  ABSL_ASSIGN_OR_RETURN(const auto place, FindPlace(path));
  Do({.node = place.first, .removed = place.second, .description = absl::StrCat("removal of ", path)});
  return absl::OkStatus();
}

}  // namespace cohort::testing
