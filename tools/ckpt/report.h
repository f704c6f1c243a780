// File: report.h
//
// What the commands share: how things from a file are shown, and what an error's exit code is.

#ifndef COHORT_TOOLS_CKPT_REPORT_H_
#define COHORT_TOOLS_CKPT_REPORT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace cohort::ckpt {

// Says what went wrong on stderr. Returns kBad if it is the file that is wrong, and otherwise kTrouble.
int Report(const absl::Status& error);

// Text from a file as a terminal may be given it: control characters and what is not UTF-8 are escaped. A name may hold
// anything.
std::string Printable(std::string_view text);

// "[2, 3]".
std::string Shape(const std::vector<int64_t>& sizes);

// "24 bytes", "1.5 MiB".
std::string Size(int64_t num_bytes);

// Prints `rows` in columns, the first of them as the heading.
void PrintTable(const std::vector<std::vector<std::string>>& rows);

// How far a long task is, on stderr if that is a terminal, from the second second on. Wiped in the end.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Update(int64_t done, int64_t total);

 private:
  const std::string what_;
  const bool is_terminal_;
  const int64_t start_ns_;
  int64_t shown_ns_ = 0;
};

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_REPORT_H_
