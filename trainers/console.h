// File: console.h
//
// Console: what a trainer shows to people, on the main rank: plain lines, and on a terminal a bar.

#ifndef COHORT_TRAINERS_CONSOLE_H_
#define COHORT_TRAINERS_CONSOLE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/progress_bar.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer.h"

namespace cohort {

// Other ranks write nothing. Lines go out at once: somebody may be watching through a pipe.
class Console {
 public:
  explicit Console(const ProcessGroup& group);

  // To stdout.
  template <typename... Args>
  void Print(const absl::FormatSpec<Args...>& format, const Args&... args) {
    if (is_main_) PrintText(absl::StrFormat(format, args...));
  }
  void PrintBegin(const BeginReport& begun);
  void PrintEpoch(const EpochReport& epoch, absl::Span<const TaskMetric> metrics);
  // `retired`: the checkpoints that are no longer kept.
  void PrintSave(std::string_view path, int64_t num_bytes, absl::Duration blocked,
                 absl::Span<const std::string> retired = {});
  void PrintStop(const TrainerOutcome& outcome);
  void ShowStep(const StepReport& step);

  // To stderr.
  void Warn(std::string_view warning);

 private:
  void PrintText(std::string_view text);

  const bool is_main_;
  ProgressBar bar_;
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_CONSOLE_H_
