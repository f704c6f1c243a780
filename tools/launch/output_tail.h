// File: output_tail.h

#ifndef COHORT_TOOLS_LAUNCH_OUTPUT_TAIL_H_
#define COHORT_TOOLS_LAUNCH_OUTPUT_TAIL_H_

#include <string>
#include <string_view>
#include <vector>

namespace cohort::launch {

// Remembers the end of a stream of bytes, for the report on a rank that failed. Bounded, and cheap per byte: it keeps
// bytes and finds the lines in them only when asked.
class OutputTail {
 public:
  void Add(std::string_view bytes);

  // The last lines, oldest first, at most `max_lines`. Of a line of more than 512 bytes it is "..." and the end.
  std::vector<std::string> LastLines(int max_lines) const;

 private:
  std::string bytes_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_OUTPUT_TAIL_H_
