// File: crash_points.h
//
// EnumerateCrashes: does something on a CrashFileSystem again and again, with a crash at another operation each time,
// until there was one at each.

#ifndef COHORT_CHECKPOINT_TESTING_CRASH_POINTS_H_
#define COHORT_CHECKPOINT_TESTING_CRASH_POINTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "cohort/checkpoint/testing/crash_file_system.h"

namespace cohort::testing {

// What is done, and what must be true of the disk afterwards.
class CrashSubject {
 public:
  using WithDisk = absl::FunctionRef<void(CrashFileSystem& disk)>;
  using Violations = std::vector<std::string>;

  virtual ~CrashSubject() = default;

  // Calls `with` for every disk on which Act may find itself.
  virtual void ForEachDisk(WithDisk with) = 0;

  // Looks at the disk before Act.
  virtual void Begin(CrashFileSystem& disk) = 0;

  virtual absl::Status Act(CrashFileSystem& disk) = 0;

  // What is wrong on the machine that goes on after Act, of which an operation failed, has returned.
  virtual Violations CheckRunning(CrashFileSystem& disk, bool acted) = 0;

  // What is wrong on a disk that was found after a loss of power. `acted` is whether Act had said OK before.
  virtual Violations CheckRebooted(CrashFileSystem& disk, bool acted) = 0;
};

struct CrashTally {
  int64_t crash_points = 0;  // operations at which the power went, or which failed, of all disks of ForEachDisk
  int64_t states = 0;        // disks that were looked at
  CrashSubject::Violations violations;  // with what was done and what the disk had kept; no more than 100 or so

  CrashTally& operator+=(CrashTally other);
};

// The power goes before each operation of Act and after the last one; then each operation fails, once with a full disk
// and once with an I/O error, the power goes after Act has returned, or Act is done again, which must work, and the
// power goes then. After each loss of power every disk that may be found is looked at. `name` goes into messages.
CrashTally EnumerateCrashes(std::string_view name, CrashSubject& subject);

}  // namespace cohort::testing

#endif  // COHORT_CHECKPOINT_TESTING_CRASH_POINTS_H_
