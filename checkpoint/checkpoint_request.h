// File: checkpoint_request.h
//
// What CheckpointManager::Save is told, and what it tells.

#ifndef COHORT_CHECKPOINT_CHECKPOINT_REQUEST_H_
#define COHORT_CHECKPOINT_CHECKPOINT_REQUEST_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/main_only_saver.h"

namespace cohort {

struct CheckpointRequest {
  int64_t step = 0;  // at least 0, and more than that of the last save and of what was resumed from
  std::map<std::string, double> metrics;  // names of at most 256 bytes, UTF-8, without control characters
  bool pin = false;                       // retention never removes it
};

// A file of a checkpoint.
struct CheckpointPayload {
  std::string_view name;  // a plain name: no "/", not hidden, not "manifest.json" and not "pinned"
  WritePayload write;
};

// How a save went. Equal on all ranks but for `blocked`.
struct CheckpointReport {
  CheckpointInfo checkpoint;
  int64_t num_bytes = 0;
  // Of the main rank:
  absl::Duration wait_time;     // for the removals after the save before
  absl::Duration write_time;    // the payloads and the system calls they made
  absl::Duration sync_time;     // fsync of the files
  absl::Duration publish_time;  // rename, fsync of the directories, "latest"
  // Of this rank: from the call of Save to its return.
  absl::Duration blocked;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_CHECKPOINT_REQUEST_H_
