// File: metrics_report.h
//
// MetricsReport: a file to which a run appends a line of JSON for every epoch.

#ifndef COHORT_TRAINERS_METRICS_REPORT_H_
#define COHORT_TRAINERS_METRICS_REPORT_H_

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/report_file.h"

namespace cohort {

// Of the main rank alone. Not thread-safe.
class MetricsReport {
 public:
  // Local. Lines are to be appended to the file `path` (see TypedPath) by a run that saves in `checkpoint_dir`. Makes nothing.
  //
  // Errors: InvalidArgument: `path` is a name of the run itself, a directory, or a file that is no metrics report; those of
  // open(2), such as that of a missing directory or of a pipe that nobody reads.
  static absl::StatusOr<std::unique_ptr<MetricsReport>> Open(std::string_view path, std::string_view checkpoint_dir);

  // Local. Makes the file if it is missing, and appends a line, in one write, with these under their names in this order:
  // numbers with all their digits, integers without a point, null for what is not finite. The first is "epoch".
  //
  // Errors: those of write(2), with the path. The file may then end in a part of the line; the next one keeps a line of its own.
  absl::Status Append(const std::vector<std::pair<std::string, double>>& values);

 private:
  explicit MetricsReport(std::string path) : file_(std::move(path), "epoch") {}

  internal::ReportFile file_;
};

// Local. The line, without its end.
std::string MetricsLine(const std::vector<std::pair<std::string, double>>& values);

}  // namespace cohort

#endif  // COHORT_TRAINERS_METRICS_REPORT_H_
