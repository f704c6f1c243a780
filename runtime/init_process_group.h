// File: init_process_group.h
//
// InitProcessGroup: reads the environment, meets the other ranks, picks nccl or gloo, and hands out a ProcessGroup.

#ifndef COHORT_RUNTIME_INIT_PROCESS_GROUP_H_
#define COHORT_RUNTIME_INIT_PROCESS_GROUP_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"

namespace cohort {

struct InitProcessGroupOptions {
  // "gloo", "nccl", or "auto": nccl if every rank can use it, otherwise gloo on all, with one line from the main rank naming
  // the first rank that could not.
  std::string backend = "auto";
  // How long to wait for the other ranks to come.
  absl::Duration init_timeout = absl::Minutes(5);
  // ProcessGroup::timeout() of the group.
  absl::Duration timeout = absl::Minutes(10);
  // Where this process stands; nullopt reads the environment.
  std::optional<RankInfo> rank_info;
};

// Collective, once a process. Blocks until every rank is there, at most init_timeout. On success all ranks have a connected group; on failure
// nothing is left behind. A world of one opens no socket and has no backend.
//
// Errors:
//   InvalidArgument     malformed environment or options (before any socket), or a rank number used twice
//   FailedPrecondition  nccl asked for and not possible: no visible GPU (shows CUDA_VISIBLE_DEVICES), a build without nccl, no LOCAL_RANK
//                       on a node with several ranks, two ranks on one device (names both). The same on all ranks.
//   AlreadyExists       MASTER_PORT is in use on the main rank's node
//   DeadlineExceeded    ranks did not come: lists them, with world size, address and port
//   Unavailable         a rank died while meeting
absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(InitProcessGroupOptions options = {});

}  // namespace cohort

#endif  // COHORT_RUNTIME_INIT_PROCESS_GROUP_H_
