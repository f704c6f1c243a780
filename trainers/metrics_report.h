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

namespace cohort {

// Of the main rank alone. Not thread-safe.
class MetricsReport {
 public:
  // Local. Appends to the file `path` (see TypedPath), which is made if it is missing.
  //
  // Errors: those of open(2), with the path.
  static absl::StatusOr<std::unique_ptr<MetricsReport>> Open(std::string_view path);

  MetricsReport(const MetricsReport&) = delete;
  MetricsReport& operator=(const MetricsReport&) = delete;
  ~MetricsReport();

  // Local. Appends a line, in one write, with these under their names in this order: numbers with all their digits,
  // integers without a point, null for what is not finite.
  //
  // Errors: those of write(2), with the path. The file may then end in a part of the line.
  absl::Status Append(const std::vector<std::pair<std::string, double>>& values);

 private:
  MetricsReport(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  const int fd_;
  const std::string path_;
};

// Local. The line, without its end.
std::string MetricsLine(const std::vector<std::pair<std::string, double>>& values);

}  // namespace cohort

#endif  // COHORT_TRAINERS_METRICS_REPORT_H_
