// File: error_report.h
//
// What stands in an error file, and how it comes to be one.

#ifndef COHORT_RUNTIME_INTERNAL_ERROR_REPORT_H_
#define COHORT_RUNTIME_INTERNAL_ERROR_REPORT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cohort::internal {

// `error` as JSON, in the form that torch.distributed.elastic's agent reads: its text, and when it was. All of it is
// ASCII; what is no UTF-8 becomes U+FFFD, and what is very long is cut.
std::string ErrorReport(const absl::Status& error, absl::Time when);

// Creates `path` with `text` in it, whole or not at all, mode 0600.
//
// Errors: AlreadyExists if something is there, a link that leads nowhere included; otherwise by errno.
absl::Status CreateErrorFile(const std::string& path, std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_ERROR_REPORT_H_
