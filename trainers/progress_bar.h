// File: progress_bar.h
//
// ProgressBar: how far something is, on a terminal, in a line that is written over again and again.

#ifndef COHORT_TRAINERS_PROGRESS_BAR_H_
#define COHORT_TRAINERS_PROGRESS_BAR_H_

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace cohort {

// What else goes to `out` is written between Clear and the next Show. Not thread-safe.
class ProgressBar {
 public:
  // Does nothing unless `is_terminal`: lines of a log are not written over.
  ProgressBar(std::FILE* out, bool is_terminal) : out_(out), is_on_(is_terminal) {}
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { Clear(); }

  // Local. "label [=====>    ] done/all"; ten times a second at most.
  void Show(std::string_view label, int64_t done, int64_t all);

  // Local. The line is as if there had been no bar.
  void Clear();

 private:
  std::FILE* const out_;
  const bool is_on_;
  bool is_shown_ = false;
  std::chrono::steady_clock::time_point last_;  // if is_shown_
};

// Local. The line itself.
std::string ProgressLine(std::string_view label, int64_t done, int64_t all);

}  // namespace cohort

#endif  // COHORT_TRAINERS_PROGRESS_BAR_H_
