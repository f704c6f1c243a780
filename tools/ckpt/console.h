// File: console.h
//
// What commands print and return, and how far they are. Local.

#ifndef COHORT_TOOLS_CKPT_CONSOLE_H_
#define COHORT_TOOLS_CKPT_CONSOLE_H_

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cohort::ckpt {

// Exit codes, as diff, cmp and grep have them.
inline constexpr int kExitGood = 0;
inline constexpr int kExitBad = 1;      // a file is damaged or refused; the files differ; there is no such checkpoint
inline constexpr int kExitTrouble = 2;  // it could not be found out, or done

// Writes all of `text` to standard output. After an error nothing more is written: OutputError() has it.
void Print(std::string_view text);

// The first error that Print met. A reader that has seen enough (`ckpt show | head`) is none.
absl::Status OutputError();

// "ckpt: MESSAGE" on standard error, as one line.
void Complain(std::string_view message);

// A bar on standard error, if that is a terminal, from a second after the work began until this is destroyed. Not
// thread-safe; what follows one call may be in another thread.
class ProgressBar {
 public:
  // `what` is printed as it is.
  explicit ProgressBar(std::string what);
  ProgressBar(const ProgressBar&) = delete;
  ~ProgressBar();

  void Show(int64_t done, int64_t total);

 private:
  const std::string what_;
  const bool is_wanted_;
  std::chrono::steady_clock::time_point next_;
  bool is_shown_ = false;
};

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_CONSOLE_H_
