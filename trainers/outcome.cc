#include "cohort/trainers/outcome.h"

#include <cstdio>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/error_file.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return kExitUnavailable;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return kExitInternal;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDataLoss:
      return kExitIo;
    default:
      return kExitUsage;
  }
}

void ReportError(const absl::Status& status) {
  WriteErrorFile(status);
  absl::FPrintF(stderr, "error: %s\n", internal::Printable(status.message()));
  std::fflush(stderr);
}

void ReportError(ProcessGroup& group, const absl::Status& status) {
  WriteErrorFile(status);
  if (group.is_main()) ReportError(status);
  const bool main_has_written = group.Agree("the error is written", absl::OkStatus()).ok();
  if (!group.is_main() && !main_has_written) ReportError(status);
}

}  // namespace cohort
