// File: removals.h
//
// Removals: checkpoints that go while training goes on.

#ifndef COHORT_CHECKPOINT_INTERNAL_REMOVALS_H_
#define COHORT_CHECKPOINT_INTERNAL_REMOVALS_H_

#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "cohort/checkpoint/file_system.h"

namespace cohort::internal {

// Not thread-safe; has one thread of its own while there is something to remove.
class Removals {
 public:
  // `file_system` must outlive the object; `directory` is a run directory that this process has locked.
  Removals(FileSystem& file_system, std::string_view directory) : file_system_(file_system), directory_(directory) {}
  // Waits.
  ~Removals() { (void)Wait(); }

  // Starts to remove checkpoints, in this order. Waits first for those of the call before.
  void Start(std::vector<std::string> names);

  // Blocks until all are gone, or could not be removed: returns those errors since the last call of Wait.
  std::vector<absl::Status> Wait();

 private:
  FileSystem& file_system_;
  const std::string directory_;
  std::thread thread_;
  std::vector<absl::Status> errors_;  // the thread's as long as there is one
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_REMOVALS_H_
