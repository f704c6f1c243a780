// File: crash_file_system.h
//
// CrashFileSystem: a disk in memory that fails, or loses power, at the operation of one's choice.
//
//   for (int n = 1;; ++n) {
//     CrashFileSystem disk;
//     disk.LosePowerAt(n);
//     absl::Status saved = Save(disk, "/m.pt");
//     disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view kept) { ... rebooted.Read("/m.pt") ... });
//     if (disk.num_operations() < n) break;  // the save came to its end
//   }

#ifndef COHORT_CHECKPOINT_TESTING_CRASH_FILE_SYSTEM_H_
#define COHORT_CHECKPOINT_TESTING_CRASH_FILE_SYSTEM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort::testing {

// Promises no more than POSIX does. What is written is on the disk once the file is synced; what is made, renamed and
// removed in a directory, once the directory is. Until then each such change is, on its own, kept or lost with the
// power: data may go while the rename after it stays, and a rename over a file that is lost brings the old file back.
// Of a write that is lost, half may stay. Syncing a file says nothing about its name. What a symlink says is never lost
// without its name. Nor is what Lock writes, which is for people: only the name of the file that it makes is.
//
// Begins as "/" alone. Symlinks are followed as POSIX does. A rename stays within one directory. Operations, counted
// from 1, are what changes the disk or waits for it: Create, Append, Overwrite, OutputFile::Sync, Rename, Remove,
// RemoveIfAbandoned, MakeDirectory, RemoveDirectory, MakeSymlink, Lock, SyncDirectory. Thread-safe. Locks and files in
// use are those of running programs: after a loss of power there are none.
class CrashFileSystem final : public FileSystem {
 public:
  CrashFileSystem();
  CrashFileSystem(const CrashFileSystem&) = delete;
  CrashFileSystem& operator=(const CrashFileSystem&) = delete;

  // The power goes when operation `n` is about to be done: neither that one is done nor any later one, and everything
  // returns Unavailable.
  void LosePowerAt(int64_t n);

  // Operation `n` fails with `error`. It does nothing, but for Append and Overwrite, which write half, and OutputFile::Sync, after
  // which the disk has dropped what was to be synced and would call a second try a success (as Linux does with a file's
  // data; a directory's entries it does not drop).
  void FailAt(int64_t n, absl::Status error);

  // Operation `n` and all later ones fail like that, until Repair.
  void FailFrom(int64_t n, absl::Status error);
  void Repair();

  // How many operations have been done or have failed.
  int64_t num_operations() const;

  // What they were, one a line, for messages.
  std::string Log() const;

  // Calls `visit` with every disk that a machine may find when the power comes back, if it went now: each subset of the
  // changes that were not synced, but for those that leave the same names and contents as another. `kept` says which
  // were, for messages.
  void ForEachOutcome(absl::FunctionRef<void(CrashFileSystem& rebooted, std::string_view kept)> visit) const;

  // The contents of a file as a running program sees it, or nullopt.
  std::optional<std::string> Read(std::string_view path) const;

  absl::StatusOr<FileInfo> Inspect(std::string_view path) override;
  absl::StatusOr<std::string> ReadLink(std::string_view path) override;
  absl::StatusOr<std::vector<std::string>> List(std::string_view directory) override;
  absl::StatusOr<std::string> ReadSmallFile(std::string_view path, int64_t max_bytes) override;
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(std::string_view path, std::optional<int> permissions) override;
  absl::Status Rename(std::string_view from, std::string_view to) override;
  absl::Status Remove(std::string_view path) override;
  absl::Status RemoveIfAbandoned(std::string_view path) override;
  absl::Status MakeDirectory(std::string_view path) override;
  absl::Status RemoveDirectory(std::string_view path) override;
  absl::Status MakeSymlink(std::string_view target, std::string_view path) override;
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(std::string_view path, std::string_view owner) override;
  absl::Status SyncDirectory(std::string_view path) override;

 private:
  class File;
  class NodeLock;
  class Outcomes;

  using Entries = std::map<std::string, int, std::less<>>;  // name to node
  struct Node {
    FileType type = FileType::kRegular;
    int permissions = 0;
    std::string contents;  // of a symlink: its target
    Entries entries;
  };
  // Nodes by number; 0 is "/". A node that no entry names is not reachable.
  using Tree = std::map<int, Node>;

  // A change of one node that is not yet on the disk: a write into a file, or names gone from and put into a directory.
  struct Change {
    int node = 0;
    int64_t offset = 0;
    std::string bytes;
    std::string removed;
    std::string added;
    int added_node = 0;
    std::string description;
  };

  static void Apply(const Change& change, Node& node);
  void Do(Change change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(int node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drop(int node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Counts an operation. An error means that it must not be done.
  absl::Status Begin(std::string_view description) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPower() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  enum class LastSymlink { kItself, kFollowed };
  absl::StatusOr<int> Find(std::string_view path, LastSymlink last) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int> FindDirectory(std::string_view path) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The directory that holds `path`, and the last name of `path`.
  absl::StatusOr<std::pair<int, std::string>> FindPlace(std::string_view path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether something of the type of `from` may take the place of `to`.
  absl::Status CheckReplaceable(const Node& from, const Node& to, std::string_view path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<int> Make(std::string_view path, Node node) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Unlink(std::string_view path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Tree live_ ABSL_GUARDED_BY(mutex_);     // what a running program sees
  Tree durable_ ABSL_GUARDED_BY(mutex_);  // what is on the disk for certain
  std::vector<Change> unsynced_ ABSL_GUARDED_BY(mutex_);
  std::set<int> in_use_ ABSL_GUARDED_BY(mutex_);
  int next_node_ ABSL_GUARDED_BY(mutex_) = 1;

  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> lose_power_at_ ABSL_GUARDED_BY(mutex_);
  bool power_lost_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<int64_t, absl::Status> fail_at_ ABSL_GUARDED_BY(mutex_);
  std::optional<std::pair<int64_t, absl::Status>> fail_from_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_CRASH_FILE_SYSTEM_H_
