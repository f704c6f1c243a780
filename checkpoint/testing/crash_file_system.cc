#include "cohort/checkpoint/testing/crash_file_system.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
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
#include "cohort/checkpoint/file_system.h"

namespace cohort::testing {
namespace {

constexpr int kRoot = 0;
// A test that leaves more changes unsynced than can be tried has gone wrong.
constexpr size_t kMaxOutcomes = 1 << 16;

// As many as Linux follows.
constexpr int kMaxSymlinks = 40;

absl::Status NotFound(std::string_view path) {
  return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
}
absl::Status NotADirectory(std::string_view path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": Not a directory"));
}
absl::Status IsADirectory(std::string_view path) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": Is a directory"));
}
absl::Status NotEmpty(std::string_view path) {
  return absl::FailedPreconditionError(absl::StrCat(path, ": Directory not empty"));
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

class CrashFileSystem::NodeLock final : public FileLock {
 public:
  NodeLock(CrashFileSystem& disk, int node, std::string_view path) : disk_(disk), node_(node), path_(path) {}
  ~NodeLock() override {
    absl::MutexLock lock(disk_.mutex_);
    disk_.in_use_.erase(node_);
  }

  bool IsInPlace() const override {
    absl::MutexLock lock(disk_.mutex_);
    const absl::StatusOr<int> there = disk_.Find(path_, LastSymlink::kItself);
    return there.ok() && *there == node_;
  }

 private:
  CrashFileSystem& disk_;
  const int node_;
  const std::string path_;
};

CrashFileSystem::CrashFileSystem() {
  const Node root{.type = FileType::kDirectory, .permissions = 0755};
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

void CrashFileSystem::FailFrom(int64_t n, absl::Status error) {
  absl::MutexLock lock(mutex_);
  fail_from_.emplace(n, std::move(error));
}

void CrashFileSystem::Repair() {
  absl::MutexLock lock(mutex_);
  fail_from_.reset();
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
  const absl::StatusOr<int> node = Find(path, LastSymlink::kFollowed);
  if (!node.ok() || live_.at(*node).type != FileType::kRegular) return std::nullopt;
  return live_.at(*node).contents;
}

// What may be found of a disk that lost power. The changes of one node do not depend on those of another, so each node
// that can be seen is found in one of several versions, and what can be seen below a directory depends on its version.
class CrashFileSystem::Outcomes {
 public:
  Outcomes(Tree durable, std::vector<Change> unsynced, int next_node,
           absl::FunctionRef<void(CrashFileSystem&, std::string_view)> visit)
      : durable_(std::move(durable)), unsynced_(std::move(unsynced)), next_node_(next_node), visit_(visit) {}

  void Run() { Choose({}, {kRoot}, {}); }

 private:
  struct Version {
    Node node;
    std::vector<std::string> kept;
  };

  // Each change is lost or kept; a write may also be kept in half. No two versions are alike.
  std::vector<Version> VersionsOf(int number) const {
    std::vector<Version> versions = {{durable_.at(number), {}}};
    for (const Change& change : unsynced_) {
      if (change.node != number) continue;
      for (size_t i = 0, size = versions.size(); i < size; ++i) {
        Add(change, change.description, versions, i);
        if (change.bytes.size() < 2) continue;
        Change half = change;
        half.bytes.resize(half.bytes.size() / 2);
        Add(half, absl::StrCat("half of ", change.description), versions, i);
      }
      ABSL_CHECK_LE(versions.size(), kMaxOutcomes) << "too many unsynced changes to try all subsets";
    }
    std::vector<Version> different;
    std::set<std::pair<std::string, Entries>> seen;
    for (Version& version : versions) {
      if (seen.emplace(version.node.contents, version.node.entries).second) different.push_back(std::move(version));
    }
    return different;
  }

  static void Add(const Change& change, const std::string& description, std::vector<Version>& versions, size_t place) {
    Version version = versions[place];
    Apply(change, version.node);
    version.kept.push_back(description);
    versions.push_back(std::move(version));
  }

  // `tree` holds the nodes whose version has been chosen; `pending` are some that can be seen.
  void Choose(const Tree& tree, std::vector<int> pending, const std::vector<std::string>& kept) {
    while (!pending.empty() && tree.contains(pending.back())) pending.pop_back();
    if (pending.empty()) return Visit(tree, kept);
    const int number = pending.back();
    pending.pop_back();
    for (Version& version : VersionsOf(number)) {
      std::vector<int> next = pending;
      for (const auto& [name, child] : version.node.entries) next.push_back(child);
      std::vector<std::string> kept_now = kept;
      kept_now.insert(kept_now.end(), version.kept.begin(), version.kept.end());
      Tree chosen = tree;
      chosen[number] = std::move(version.node);
      Choose(chosen, std::move(next), kept_now);
    }
  }

  void Visit(const Tree& tree, const std::vector<std::string>& kept) {
    ABSL_CHECK_LE(++num_visits_, kMaxOutcomes) << "too many unsynced changes to try all subsets";
    CrashFileSystem rebooted;
    {
      absl::MutexLock lock(rebooted.mutex_);
      rebooted.durable_ = tree;
      rebooted.live_ = tree;
      rebooted.next_node_ = next_node_;
    }
    visit_(rebooted, kept.empty() ? "nothing unsynced" : absl::StrJoin(kept, "; "));
  }

  const Tree durable_;
  const std::vector<Change> unsynced_;
  const int next_node_;
  const absl::FunctionRef<void(CrashFileSystem&, std::string_view)> visit_;
  size_t num_visits_ = 0;
};

void CrashFileSystem::ForEachOutcome(absl::FunctionRef<void(CrashFileSystem&, std::string_view)> visit) const {
  std::optional<Outcomes> outcomes;
  {
    absl::MutexLock lock(mutex_);
    outcomes.emplace(durable_, unsynced_, next_node_, visit);
  }
  outcomes->Run();
}

absl::StatusOr<FileInfo> CrashFileSystem::Inspect(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(CheckPower());
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kItself));
  const Node& found = live_.at(node);
  return FileInfo{
      .type = found.type,
      .permissions = found.permissions,
      .num_bytes = found.type == FileType::kRegular ? static_cast<int64_t>(found.contents.size()) : 0,
  };
}

absl::StatusOr<std::string> CrashFileSystem::ReadLink(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(CheckPower());
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kItself));
  if (live_.at(node).type == FileType::kSymlink) return live_.at(node).contents;
  return absl::InvalidArgumentError(absl::StrCat(path, " is not a symlink"));
}

absl::StatusOr<std::vector<std::string>> CrashFileSystem::List(std::string_view directory) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(CheckPower());
  ABSL_ASSIGN_OR_RETURN(const int node, FindDirectory(directory));
  std::vector<std::string> names;
  for (const auto& [name, child] : live_.at(node).entries) names.push_back(name);
  return names;
}

absl::StatusOr<std::string> CrashFileSystem::ReadSmallFile(std::string_view path, int64_t max_bytes) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(CheckPower());
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kFollowed));
  const Node& found = live_.at(node);
  if (found.type != FileType::kRegular) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (static_cast<int64_t>(found.contents.size()) <= max_bytes) return found.contents;
  return absl::OutOfRangeError(absl::StrCat(path, " has more than ", max_bytes, " bytes"));
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
  ABSL_ASSIGN_OR_RETURN(const int node, Find(from, LastSymlink::kItself));
  ABSL_ASSIGN_OR_RETURN(const auto source, FindPlace(from));
  ABSL_ASSIGN_OR_RETURN(const auto destination, FindPlace(to));
  ABSL_CHECK_EQ(source.first, destination.first) << "a rename between directories is not modelled";
  if (const absl::StatusOr<int> old = Find(to, LastSymlink::kItself); old.ok()) {
    if (*old == node) return absl::OkStatus();
    ABSL_RETURN_IF_ERROR(CheckReplaceable(live_.at(node), live_.at(*old), to));
  }
  Do({.node = source.first,
      .removed = source.second,
      .added = destination.second,
      .added_node = node,
      .description = absl::StrCat("rename ", from, " to ", to)});
  return absl::OkStatus();
}

absl::Status CrashFileSystem::CheckReplaceable(const Node& from, const Node& to, std::string_view path) const {
  const bool is_directory = from.type == FileType::kDirectory;
  if (is_directory && to.type != FileType::kDirectory) return NotADirectory(path);
  if (!is_directory && to.type == FileType::kDirectory) return IsADirectory(path);
  return to.entries.empty() ? absl::OkStatus() : NotEmpty(path);
}

absl::Status CrashFileSystem::Remove(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("remove ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kItself));
  if (const size_t slash = path.rfind('/'); slash > 0) {
    ABSL_ASSIGN_OR_RETURN(const int directory, Find(path.substr(0, slash), LastSymlink::kItself));
    if (live_.at(directory).type != FileType::kDirectory) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": the directory is a symlink"));
    }
  }
  if (live_.at(node).type == FileType::kDirectory) return IsADirectory(path);
  return Unlink(path);
}

absl::Status CrashFileSystem::RemoveIfAbandoned(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("remove abandoned ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kItself));
  if (live_.at(node).type != FileType::kRegular) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a file"));
  }
  if (in_use_.contains(node)) return absl::FailedPreconditionError(absl::StrCat(path, " is in use"));
  return Unlink(path);
}

absl::Status CrashFileSystem::MakeDirectory(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("mkdir ", path)));
  return Make(path, Node{.type = FileType::kDirectory, .permissions = 0755}).status();
}

absl::Status CrashFileSystem::RemoveDirectory(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("rmdir ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kItself));
  if (live_.at(node).type != FileType::kDirectory) return NotADirectory(path);
  if (!live_.at(node).entries.empty()) return NotEmpty(path);
  return Unlink(path);
}

absl::Status CrashFileSystem::MakeSymlink(std::string_view target, std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("symlink ", path, " to ", target)));
  return Make(path, Node{.type = FileType::kSymlink, .permissions = 0777, .contents = std::string(target)}).status();
}

absl::StatusOr<std::unique_ptr<FileLock>> CrashFileSystem::Lock(std::string_view path, std::string_view owner) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("lock ", path)));
  absl::StatusOr<int> node = Find(path, LastSymlink::kItself);
  if (absl::IsNotFound(node.status())) node = Make(path, Node{.permissions = 0644});
  ABSL_RETURN_IF_ERROR(node.status());
  if (live_.at(*node).type != FileType::kRegular) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  if (!in_use_.insert(*node).second) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is locked by \"", live_.at(*node).contents, "\""));
  }
  live_[*node].contents = owner;
  durable_[*node].contents = owner;
  return std::make_unique<NodeLock>(*this, *node, path);
}

absl::Status CrashFileSystem::SyncDirectory(std::string_view path) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Begin(absl::StrCat("fsync directory ", path)));
  ABSL_ASSIGN_OR_RETURN(const int node, FindDirectory(path));
  Keep(node);
  return absl::OkStatus();
}

void CrashFileSystem::Apply(const Change& change, Node& node) {
  if (node.type != FileType::kDirectory) {
    const size_t end = change.offset + change.bytes.size();
    if (node.contents.size() < end) node.contents.resize(end, '\0');  // what was lost before it reads as zeros
    node.contents.replace(change.offset, change.bytes.size(), change.bytes);
    return;
  }
  if (!change.removed.empty()) node.entries.erase(change.removed);
  if (!change.added.empty()) node.entries[change.added] = change.added_node;
}

void CrashFileSystem::Do(Change change) {
  Apply(change, live_[change.node]);
  unsynced_.push_back(std::move(change));
}

void CrashFileSystem::Keep(int node) {
  for (const Change& change : unsynced_) {
    if (change.node == node) Apply(change, durable_[node]);
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
  absl::Status status = failure == fail_at_.end() ? absl::OkStatus() : failure->second;
  if (fail_from_.has_value() && n >= fail_from_->first) status = fail_from_->second;
  log_.push_back(absl::StrCat(n, ": ", description, status.ok() ? "" : " -- fails"));
  return status;
}

absl::Status CrashFileSystem::CheckPower() const {
  return power_lost_ ? absl::UnavailableError("power lost") : absl::OkStatus();
}

absl::StatusOr<int> CrashFileSystem::Find(std::string_view path, LastSymlink last) const {
  std::vector<int> way = {kRoot};    // from "/" to where we stand
  std::vector<std::string> pending;  // names still to be walked, the next one last
  const auto push = [&](std::string_view names) {
    const std::vector<std::string> split = absl::StrSplit(names, '/', absl::SkipEmpty());
    pending.insert(pending.end(), split.rbegin(), split.rend());
  };
  push(path);
  for (int num_symlinks = 0; !pending.empty();) {
    const std::string name = std::move(pending.back());
    pending.pop_back();
    const Node& here = live_.at(way.back());
    if (here.type != FileType::kDirectory) return NotADirectory(path);
    if (name == ".") continue;
    if (name == "..") {
      if (way.size() > 1) way.pop_back();
      continue;
    }
    const auto entry = here.entries.find(name);
    if (entry == here.entries.end()) return NotFound(path);
    const Node& next = live_.at(entry->second);
    if (next.type != FileType::kSymlink || (pending.empty() && last == LastSymlink::kItself)) {
      way.push_back(entry->second);
      continue;
    }
    if (++num_symlinks > kMaxSymlinks) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": Too many levels of symbolic links"));
    }
    if (next.contents.starts_with('/')) way.resize(1);
    push(next.contents);
  }
  return way.back();
}

absl::StatusOr<int> CrashFileSystem::FindDirectory(std::string_view path) const {
  ABSL_ASSIGN_OR_RETURN(const int node, Find(path, LastSymlink::kFollowed));
  if (live_.at(node).type != FileType::kDirectory) return NotADirectory(path);
  return node;
}

absl::StatusOr<std::pair<int, std::string>> CrashFileSystem::FindPlace(std::string_view path) const {
  const size_t slash = path.rfind('/');
  ABSL_ASSIGN_OR_RETURN(const int directory, FindDirectory(path.substr(0, slash)));
  return std::pair(directory, std::string(path.substr(slash + 1)));
}

absl::StatusOr<int> CrashFileSystem::Make(std::string_view path, Node node) {
  ABSL_ASSIGN_OR_RETURN(const auto place, FindPlace(path));
  if (Find(path, LastSymlink::kItself).ok()) return absl::AlreadyExistsError(absl::StrCat(path, ": File exists"));
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
  ABSL_ASSIGN_OR_RETURN(const auto place, FindPlace(path));
  Do({.node = place.first, .removed = place.second, .description = absl::StrCat("removal of ", path)});
  return absl::OkStatus();
}

}  // namespace cohort::testing
