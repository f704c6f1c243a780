// File: rank_output.h

#ifndef COHORT_TOOLS_LAUNCH_RANK_OUTPUT_H_
#define COHORT_TOOLS_LAUNCH_RANK_OUTPUT_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cohort/tools/launch/line_splitter.h"
#include "cohort/tools/launch/output_tail.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// One stream of one rank: from the pipe that the rank writes into, line by line, to the console.
class RankOutput {
 public:
  // Reads of `pipe` must not block. `out` gets whole lines and must outlive this.
  RankOutput(UniqueFd pipe, std::string prefix, std::string& out)
      : pipe_(std::move(pipe)), lines_(std::move(prefix)), out_(&out) {}

  // -1 once the stream has ended.
  int fd() const { return pipe_ ? pipe_.get() : -1; }

  // Reads once, a bounded amount. False at the end of the stream: the pipe should be closed then.
  bool Read();

  // Reads what is in the pipe now, and not what may come: a process that outlives the rank could write for ever.
  void Drain();

  // The last of it: prints an unfinished line and closes the pipe.
  void Finish();

  std::vector<std::string> LastLines(int max_lines) const { return tail_.LastLines(max_lines); }

 private:
  // Reads at most `max_bytes`; returns what read() does.
  ssize_t ReadSome(size_t max_bytes);

  UniqueFd pipe_;
  LineSplitter lines_;
  OutputTail tail_;
  std::string* out_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_RANK_OUTPUT_H_
