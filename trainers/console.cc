#include "cohort/trainers/console.h"

#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer.h"

namespace cohort {
namespace {

// "epoch 4", or within an epoch "epoch 4 and 64 rows".
std::string Place(int64_t epochs, int64_t rows_done) {
  const std::string epoch = epochs > 0 ? absl::StrCat("epoch ", epochs - 1) : "";
  const std::string rows = rows_done > 0 ? absl::StrCat(rows_done, " rows") : "";
  return absl::StrCat(epoch, epoch.empty() || rows.empty() ? "" : " and ", rows);
}

}  // namespace

Console::Console(const ProcessGroup& group)
    : is_main_(group.is_main()), bar_(stdout, group.is_main() && isatty(STDOUT_FILENO) == 1) {}

void Console::PrintText(std::string_view text) {
  bar_.Clear();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void Console::Warn(std::string_view warning) {
  if (!is_main_) return;
  bar_.Clear();
  absl::FPrintF(stderr, "warning: %s\n", internal::Printable(warning));
  std::fflush(stderr);
}

void Console::PrintBegin(const BeginReport& begun) {
  if (begun.rows_held_out > 0) {
    Print("held out %d of %d rows; metrics are of these\n", begun.rows_held_out,
          begun.rows_held_out + begun.rows_in_epoch);
  }
  if (begun.resumed_from.empty()) {
    Print("started  learning rate %.4g\n", begun.learning_rate);
    return;
  }
  Print("resumed  %s  after %s, step %d; learning rate %.4g\n", internal::Printable(begun.resumed_from),
        Place(begun.epochs, begun.rows_done), begun.step, begun.learning_rate);
  if (!begun.changes.empty()) Warn(absl::StrCat("not as it was saved: ", absl::StrJoin(begun.changes, "; ")));
}

void Console::PrintEpoch(const EpochReport& epoch, absl::Span<const TaskMetric> metrics) {
  std::string shown;
  for (size_t i = 0; i < metrics.size(); ++i) {
    const double value = epoch.metrics[i];
    absl::StrAppend(&shown, "  ", metrics[i].label, " ",
                    std::isnan(value) ? "undefined" : absl::StrFormat("%.5f", value));
  }
  Print("epoch %-3d loss %.6f%s\n", epoch.epoch, epoch.loss, shown);
}

void Console::PrintSave(std::string_view path, int64_t num_bytes, absl::Duration blocked,
                        absl::Span<const std::string> retired) {
  Print("saved    %s  %d bytes in %s%s\n", internal::Printable(path), num_bytes,
        absl::FormatDuration(absl::Trunc(blocked, absl::Microseconds(100))),
        retired.empty() ? "" : absl::StrCat("; no longer kept: ", absl::StrJoin(retired, ", ")));
}

void Console::PrintStop(const TrainerOutcome& outcome) {
  Print("stopped  after %s, step %d, as it was told to; the same command goes on\n",
        Place(outcome.epochs_done, outcome.rows_done), outcome.steps_done);
}

void Console::ShowStep(const StepReport& step) {
  bar_.Show(absl::StrCat("epoch ", step.epoch), step.rows_done, step.rows_in_epoch);
}

}  // namespace cohort
