// File: rank_info.h
//
// RankInfo: what the launcher told this process about its place in the job, checked before anything else happens.

#ifndef COHORT_RUNTIME_RANK_INFO_H_
#define COHORT_RUNTIME_RANK_INFO_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace cohort {

// This process's place in the job. Valid by construction when it comes from the functions below:
// 0 <= rank < world_size, 0 <= local_rank < local_world_size <= world_size.
struct RankInfo {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  // False if LOCAL_RANK was absent; local_rank is 0 then, which is wrong on a node with several devices.
  bool has_local_rank = false;
  int local_world_size = 1;
  // Where the ranks meet. Empty and 0 in a world of one. An IPv6 address stands without brackets.
  std::string master_addr;
  int master_port = 0;
  // The launcher from whose variables one of the two follows, for the text of errors: "Slurm". Empty if both were given.
  std::string master_derived_from;
  // Keys in a shared store carry both, so that a restarted job never reads its predecessor's.
  std::string run_id = "none";
  int restart_count = 0;
  // True under torchrun's agent: it serves the store at master_addr:master_port, and rank 0 is a client of it as well.
  bool use_agent_store = false;
};

// Returns the value of an environment variable, or nullopt if it is not set.
using GetEnv = absl::FunctionRef<std::optional<std::string>(std::string_view name)>;

// Local. Finds out through `get_env` which launcher has started this process, and reads its variables and no other's.
// The first of these that is there counts:
//
//   torchrun   RANK or WORLD_SIZE. They go together with MASTER_ADDR and MASTER_PORT: none is a world of one;
//              WORLD_SIZE=1 needs no master. Also cohort's launcher, PyTorchJob, and ranks that are started by hand.
//                LOCAL_RANK                     if absent 0
//                LOCAL_WORLD_SIZE               if absent WORLD_SIZE, or 1 if LOCAL_RANK is absent as well
//                TORCHELASTIC_RUN_ID            if absent "none"
//                TORCHELASTIC_RESTART_COUNT     if absent 0
//                TORCHELASTIC_USE_AGENT_STORE   "True" or "False"; if absent false
//   Open MPI   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE; PMIX_NAMESPACE
//   Slurm      SLURM_STEP_ID is that of a step of srun: SLURM_PROCID, _STEP_NUM_TASKS, _LOCALID, _NODEID,
//              _STEP_TASKS_PER_NODE, _STEP_NODELIST, _JOB_ID, _RESTART_COUNT. A program that is started by hand in a
//              batch script or in the shell of an allocation is a world of one, whatever MASTER_ADDR is.
//   PMIx       PMIX_RANK alone: an error, because nothing says how many ranks there are
//
// MASTER_ADDR and MASTER_PORT count under each launcher. Where Open MPI or Slurm has started the process and one of them
// is absent, it follows from their variables: docs/launching.md says how.
//
// Errors:
//   InvalidArgument  something is missing (names it), malformed or of unknown form, or contradicts something else
//                    (variable, value, what is allowed). No socket has been opened.
absl::StatusOr<RankInfo> ParseRankInfo(GetEnv get_env);

// ParseRankInfo of this process's environment. Not safe while another thread changes the environment.
absl::StatusOr<RankInfo> RankInfoFromEnvironment();

// Local. What ParseRankInfo finds and why, as lines for people: the launcher, the rank, where the ranks meet and how that
// came about, or the error; which variables were read, and which of other launchers were not.
std::string ExplainRankInfo(GetEnv get_env);

// ExplainRankInfo of this process's environment.
std::string ExplainRankInfoFromEnvironment();

}  // namespace cohort

#endif  // COHORT_RUNTIME_RANK_INFO_H_
