// File: report.h
//
// How ranks ended, in words.

#ifndef COHORT_TOOLS_LAUNCH_REPORT_H_
#define COHORT_TOOLS_LAUNCH_REPORT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/tools/launch/process_table.h"

namespace cohort::launch {

// How one rank ended.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  ProcessEnd how;
  absl::Time when;
  // Since it was started.
  absl::Duration lifetime;
  // It ended as the launcher had asked it to: by the signal that it was sent, or with code 0 or 75 after that.
  bool was_stopped = false;
};

// The exit code with which a program says that it was told to stop, has saved what it had done, and goes on from there when
// it is started again (sysexits.h: EX_TEMPFAIL). Ours as well, if that is how the ranks ended.
inline constexpr int kExitPreempted = 75;

inline bool IsPreempted(const ProcessEnd& end) { return end.signal == 0 && end.exit_code == kExitPreempted; }
inline bool IsFailure(const ProcessEnd& end) {
  return end.signal != 0 || (end.exit_code != 0 && end.exit_code != kExitPreempted);
}

// What a shell's $? would show: the exit code, or 128+N for signal N.
inline int ShellExitCode(const ProcessEnd& end) { return end.signal != 0 ? 128 + end.signal : end.exit_code; }

// "exited with code 3", "killed by SIGSEGV (core dumped)".
std::string DescribeEnd(const ProcessEnd& end);

// "rank 2 (pid 4711)".
std::string DescribeRank(const RankEnd& end);

// "0, 1, 5-7": ranks in increasing order.
std::string RankList(absl::Span<const int> ranks);

// Whether the job was preempted: every rank ended with 0 or kExitPreempted, and one at least with the latter.
bool WasPreempted(absl::Span<const RankEnd> ends);

// "preempted: ranks 0, 2 exited with code 75, rank 1 with 0; the same command goes on".
std::string DescribePreemption(absl::Span<const RankEnd> ends);

// What became of the ranks after the first cause: a line for each kind of end, with the ranks it holds for.
std::vector<std::string> DescribeConsequences(absl::Span<const RankEnd> ends);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_REPORT_H_
