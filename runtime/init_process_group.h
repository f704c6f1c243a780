// File: init_process_group.h
//
// InitProcessGroup: reads the environment, meets the other ranks, picks nccl or gloo, and hands out a ProcessGroup.

#ifndef COHORT_RUNTIME_INIT_PROCESS_GROUP_H_
#define COHORT_RUNTIME_INIT_PROCESS_GROUP_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

struct InitProcessGroupOptions {
  // "gloo" (tensors on the CPU), "nccl" (tensors on CUDA devices), or "auto": nccl if every rank can use it, otherwise
  // gloo on all, with one line on the main rank's stderr that names the first rank that could not, and why.
  std::string backend = "auto";
  // How long to wait for the other ranks to come. More than zero, as the next.
  absl::Duration init_timeout = absl::Minutes(5);
  // ProcessGroup::timeout() of the group.
  absl::Duration timeout = absl::Minutes(10);
  // Where this process stands; nullopt reads the environment.
  std::optional<RankInfo> rank_info;
};

// Collective. Blocks until every rank is there, at most init_timeout; if that takes more than 10 s, rank 0 and one rank of each
// machine say on stderr whom they wait for. On success all ranks have a connected group; on
// failure nothing is left behind but, for as long as init_timeout lasts, a thread that LibTorch gives no means to end.
// A process may form one group after another, all its ranks equally often.
//
// A world of one opens no socket and gets ProcessGroup::WorldOfOne(), whose backend is none; "nccl" without a GPU is
// refused all the same.
//
// nccl: a rank uses the device numbered LOCAL_RANK if that many are visible, or the only visible one. The current
// device stays what it is. A collective that takes too long never ends the process: LibTorch's watchdog is told so
// through the variables TORCH_NCCL_ASYNC_ERROR_HANDLING and TORCH_NCCL_ENABLE_MONITORING, unless they are set already.
//
// What goes wrong, here and in the group later, is left in the file that TORCHELASTIC_ERROR_FILE names, for the launcher to
// show: see error_file.h.
//
// Environment, besides RankInfo's: GLOO_SOCKET_IFNAME=IF[,IF...] names the network interfaces that gloo listens on;
// without it, that is the address by which this machine reaches MASTER_ADDR. The main rank listens at MASTER_ADDR alone
// where it can, so on loopback alone if that is loopback. No name but MASTER_ADDR is looked up, and numbers are not.
//
// Errors:
//   InvalidArgument     malformed environment or options, an unknown network interface (before any socket);
//                       MASTER_ADDR has no address for 3 s (with several machines: for 30 s on rank 0, while the others
//                       say so on stderr and wait: its name may come with its machine), or is a loopback address that
//                       this machine does not have;
//                       a rank number used twice; different ideas of the world size;
//                       gloo on different machines, one of which would listen on loopback (names GLOO_SOCKET_IFNAME)
//   FailedPrecondition  nccl asked for and not possible: no visible GPU (shows CUDA_VISIBLE_DEVICES), a build without
//                       nccl, no LOCAL_RANK, two ranks on one device (names both). The same on all ranks, as soon as
//                       all are there. Or what listens at MASTER_ADDR:MASTER_PORT is not rank 0 of a cohort job
//   AlreadyExists       MASTER_PORT is in use on the main rank's node
//   DeadlineExceeded    ranks did not come: lists them, with world size, address and port; and says so, if MASTER_ADDR is
//                       loopback in a job of several machines. That is not refused before: they may be one machine's
//   Unavailable         a rank died while meeting
absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(InitProcessGroupOptions options = {});

}  // namespace cohort

#endif  // COHORT_RUNTIME_INIT_PROCESS_GROUP_H_
