// File: launcher_environment.h
//
// LauncherEnvironment: the variables by which one launcher tells its processes who they are. One subclass a launcher;
// rank_info.cc decides which of them counts.

#ifndef COHORT_RUNTIME_INTERNAL_LAUNCHER_ENVIRONMENT_H_
#define COHORT_RUNTIME_INTERNAL_LAUNCHER_ENVIRONMENT_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/environment_values.h"

namespace cohort::internal {

// What a launcher says about a process, as RankInfo has it, but for where the ranks meet.
struct Placement {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  bool has_local_rank = false;
  int local_world_size = 1;
  std::string run_id = "none";
  int restart_count = 0;
  bool use_agent_store = false;
};

// A value that follows from others, and how, in words that follow "it is ".
template <typename T>
struct Derived {
  T value;
  std::string how;
};

// Reads nothing but what it is given. The errors are InvalidArgument, and name a variable, its value if it has one, and
// what is allowed.
class LauncherEnvironment {
 public:
  virtual ~LauncherEnvironment() = default;

  // "Open MPI".
  virtual std::string_view name() const = 0;

  // Every variable that it looks at, but MASTER_ADDR and MASTER_PORT.
  virtual absl::Span<const std::string_view> variables() const = 0;

  // Whether this launcher has started the process.
  virtual absl::StatusOr<bool> HasStarted(GetVariable get) const = 0;

  // Who the process is, if it has.
  virtual absl::StatusOr<Placement> Place(GetVariable get) const = 0;

  // Where the ranks meet if MASTER_ADDR or MASTER_PORT does not say it: the same on all ranks. Called in a world of
  // several ranks.
  virtual absl::StatusOr<Derived<std::string>> DeriveMasterAddr(const Placement& placement, GetVariable get) const = 0;
  virtual absl::StatusOr<Derived<int>> DeriveMasterPort(const Placement& placement, GetVariable get) const = 0;
};

inline bool IsOneNode(const Placement& placement) { return placement.local_world_size == placement.world_size; }

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_LAUNCHER_ENVIRONMENT_H_
