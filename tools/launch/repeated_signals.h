// File: repeated_signals.h

#ifndef COHORT_TOOLS_LAUNCH_REPEATED_SIGNALS_H_
#define COHORT_TOOLS_LAUNCH_REPEATED_SIGNALS_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <sys/types.h>

#include <chrono>
#include <map>
#include <utility>

namespace cohort::launch {

// Tells a signal that was meant once and came twice from one that was meant again. `timeout`, as an example, signals the
// program that it has started, and then the whole process group, the program included: a second INT, which would have
// the ranks killed in the midst of what the first one began.
class RepeatedSignals {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Whether `signal` repeats one that `sender` sent less than a tenth of a second before, and that did not repeat
  // another. What a person types has no sender (0), and is always meant.
  bool IsRepeated(int signal, pid_t sender, Time now);

 private:
  std::map<std::pair<int, pid_t>, Time> meant_;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_REPEATED_SIGNALS_H_
