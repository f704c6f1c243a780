// File: environment.h
//
// What a rank is told: torchrun's variables, on top of the environment that the launcher itself was started with.

#ifndef COHORT_TOOLS_LAUNCH_ENVIRONMENT_H_
#define COHORT_TOOLS_LAUNCH_ENVIRONMENT_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace cohort::launch {

// Name to value.
using Environment = std::map<std::string, std::string, std::less<>>;

// Reads a null-terminated array of "NAME=value", such as `environ`. Of a name that occurs twice the first value counts,
// as for getenv(); an entry without '=' is dropped.
Environment ReadEnvironment(const char* const* entries);

// "NAME=value" for each variable, what exec() wants.
std::vector<std::string> EnvironmentEntries(const Environment& environment);

// True if `environment` is that of a rank of some job, for instance if a test that was itself launched calls the
// launcher. Its MASTER_ADDR and MASTER_PORT belong to that job then, and not to the one to be started.
bool IsInsideARank(const Environment& environment);

// What all ranks of one launcher have in common. The launcher of every node is given the same, but for node_rank.
struct JobPlan {
  int nproc_per_node = 1;
  int nnodes = 1;
  int node_rank = 0;
  std::string master_addr;
  int master_port = 0;
  // Names the job in shared stores and temporary files.
  std::string run_id;
  // What the ranks are for, in the user's words; all do the same.
  std::string role = "default";
  // How often the ranks have been started again, and may be.
  int restart_count = 0;
  int max_restarts = 0;

  int world_size() const { return nnodes * nproc_per_node; }
  int rank(int local_rank) const { return node_rank * nproc_per_node + local_rank; }
};

// The whole environment of the rank: `inherited`, with every variable that torchrun sets replaced, so that nothing of a
// surrounding job shows through. OMP_NUM_THREADS is 1 if there are several ranks on the node and `inherited` has no
// value.
Environment RankEnvironment(const JobPlan& plan, int local_rank, const Environment& inherited);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_ENVIRONMENT_H_
