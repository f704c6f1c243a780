// File: forked_job.h
//
// ForkedJob: ranks that are forks of the test itself, so that what they do is a lambda and whoever wants to can kill them.

#ifndef COHORT_TESTS_FAULTS_FORKED_JOB_H_
#define COHORT_TESTS_FAULTS_FORKED_JOB_H_

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"

namespace cohort::testing {

class ForkedJob {
 public:
  // What a rank does with the group, which it leaves by ending. `pids` are the processes of the ranks above it; those
  // below are 0.
  using Body = std::function<absl::Status(ProcessGroup& group, const std::vector<pid_t>& pids)>;

  // Starts the ranks, which meet over gloo. LibTorch must not have started threads: at::set_num_threads(1).
  explicit ForkedJob(const Body& body, int world_size = 2, absl::Duration timeout = absl::Seconds(60));

  // Kills what still runs.
  ~ForkedJob();

  ForkedJob(const ForkedJob&) = delete;
  ForkedJob& operator=(const ForkedJob&) = delete;

  pid_t pid(int rank) const { return pids_[rank]; }

  // Waits for the rank: "killed" (by SIGKILL), or what its body returned, "OK" or an error.
  std::string Wait(int rank);
  // Of all ranks.
  std::vector<std::string> Wait();

 private:
  std::string Report(int rank) const;
  pid_t Start(int rank, int port, absl::Duration timeout, const Body& body);

  const std::string reports_;
  std::vector<pid_t> pids_;  // 0: none, or waited for
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAULTS_FORKED_JOB_H_
