// File: checkpoint_request.h
//
// What CheckpointManager is told, and what it tells.

#ifndef COHORT_CHECKPOINT_CHECKPOINT_REQUEST_H_
#define COHORT_CHECKPOINT_CHECKPOINT_REQUEST_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/retention.h"

namespace cohort {

struct CheckpointManagerOptions {
  // The run's directory, of nothing else; its layout stands in docs/checkpoints.md. Made if missing. A relative one means
  // what it means to the main rank (AbsolutePath). All ranks that load must see it.
  std::string directory;
  // Not empty: the directory must be this run's, or new. Empty: whatever run it is; a new one is called TORCHELASTIC_RUN_ID,
  // unless that is "none", and otherwise gets a random name. At most 256 printable ASCII characters.
  std::string run_id;
  // What the model is, in one line (ModelSignature in module_state.h): a run goes on with the model it began with. Empty:
  // not compared. At most 1024 bytes.
  std::string model;
  RetentionPolicy retention;
  // As MainOnlySaver::Options::timeout.
  absl::Duration timeout = absl::Minutes(30);
  // Not empty: a file to which the main rank appends a line of JSON for every save; see docs/checkpoints.md.
  // It may stand in the run's directory, but not have a name of the run itself; what is there already must be such a report
  // (InvalidArgument). That it cannot be written is a warning at each save.
  std::string report_path;
  // Called on the main rank, in the thread that called the manager: a checkpoint was skipped, could not be removed, ... Empty:
  // ABSL_LOG(WARNING).
  std::function<void(std::string_view warning)> on_warning;
};

// How a checkpoint is verified before it is loaded.
enum class VerifyDepth {
  // That all files are there, with their lengths. For a `load` that verifies what it reads, as LoadTrainingState does.
  kManifest,
  // Also their checksums: the main rank reads every file once more.
  kChecksums,
};

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
  // The names of the checkpoints that retention no longer keeps, now that this one is there: they are being removed.
  std::vector<std::string> retired;
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
