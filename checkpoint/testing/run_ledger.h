// File: run_ledger.h
//
// RunLedger: what a run directory held before a save, and what is wrong with it afterwards. For every FileSystem: a real
// disk whose writer was killed, and one in memory that lost power.

#ifndef COHORT_CHECKPOINT_TESTING_RUN_LEDGER_H_
#define COHORT_CHECKPOINT_TESTING_RUN_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/retention.h"

namespace cohort::testing {

// The contents of a file of `num_bytes` bytes (at least 64) that say of which save of which step they are, and show
// whether they are whole.
std::string TestPayload(int64_t step, int64_t save, size_t num_bytes = 64);

// "step 3, save 7", or nullopt if `contents` are not TestPayload's.
std::optional<std::string> PayloadName(std::string_view contents);

// The rules (a save may have been killed at any point of it, or the power have gone):
//
//   I1  what is listed is what was saved, to the last byte; nothing half done looks like a checkpoint; the newest one is
//       no older than before
//   I2  if the save said OK, its checkpoint is the newest
//   I3  "latest" is as it was, if that led nowhere, or leads to a checkpoint; to the new one if the save said OK
//   I4  nothing is missing but what the policy lets go once the new one is there; never a pinned one or the best
//   I5  the next save works, and leaves what the policy keeps and nothing else
class RunLedger {
 public:
  using Violations = std::vector<std::string>;

  // Looks at `directory`, which need not exist. The files of its checkpoints are "state.pt", of TestPayload.
  RunLedger(FileSystem& file_system, std::string directory, RetentionPolicy policy);

  // What is wrong with the directory after TestPayload(`step`, `save`) was being saved. `saved` is whether that said OK.
  Violations Check(FileSystem& file_system, int64_t step, int64_t save, bool saved) const;

  // The same after that said OK and all removals have ended: also what is there and should not be, or the reverse. A file
  // "notes" may be there.
  Violations CheckTidy(FileSystem& file_system, int64_t step, int64_t save) const;

  // The highest step that was there, or 0.
  int64_t last_step() const;
  // How many checkpoints were there.
  size_t size() const { return before_.size(); }

 private:
  struct Entry {
    CheckpointInfo info;
    std::string contents;  // of state.pt
  };
  // By name. A violation for each that is not what its manifest says.
  using Entries = std::map<std::string, Entry>;

  absl::StatusOr<Entries> Read(FileSystem& file_system, Violations& violations) const;
  void CheckContents(const Entries& now, int64_t step, int64_t save, bool saved, Violations& violations) const;
  void CheckKept(const Entries& now, Violations& violations) const;
  void CheckLatest(FileSystem& file_system, const Entries& now, bool saved, Violations& violations) const;
  void CheckNames(FileSystem& file_system, const Entries& now, Violations& violations) const;
  // What was there and what is now.
  std::vector<CheckpointInfo> Union(const Entries& now) const;
  std::optional<std::string> Latest(FileSystem& file_system) const;

  const std::string directory_;
  const RetentionPolicy policy_;
  Entries before_;
  std::optional<std::string> latest_;  // what it said
};

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_RUN_LEDGER_H_
