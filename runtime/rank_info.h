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
  // Keys in a shared store carry both, so that a restarted job never reads its predecessor's.
  std::string run_id = "none";
  int restart_count = 0;
  // True under torchrun's agent: it serves the store at master_addr:master_port, and rank 0 is a client of it as well.
  bool use_agent_store = false;
};

// Returns the value of an environment variable, or nullopt if it is not set.
using GetEnv = absl::FunctionRef<std::optional<std::string>(std::string_view name)>;

// Local. Reads torchrun's variables through `get_env`.
//
//   RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT   go together: none is a world of one; WORLD_SIZE=1 needs no master
//   LOCAL_RANK                     if absent 0
//   LOCAL_WORLD_SIZE               if absent WORLD_SIZE, or 1 if LOCAL_RANK is absent as well
//   TORCHELASTIC_RUN_ID            if absent "none"
//   TORCHELASTIC_RESTART_COUNT     if absent 0
//   TORCHELASTIC_USE_AGENT_STORE   "True" or "False"; if absent false
//
// Errors:
//   InvalidArgument  some but not all of the four (names what is missing), or a malformed value (variable, value,
//                    allowed range). No socket has been opened.
absl::StatusOr<RankInfo> ParseRankInfo(GetEnv get_env);

// ParseRankInfo of this process's environment. Not safe while another thread changes the environment.
absl::StatusOr<RankInfo> RankInfoFromEnvironment();

}  // namespace cohort

#endif  // COHORT_RUNTIME_RANK_INFO_H_
