// File: report_file.h
//
// ReportFile: a file to which a run appends lines of JSON.

#ifndef COHORT_CHECKPOINT_INTERNAL_REPORT_FILE_H_
#define COHORT_CHECKPOINT_INTERNAL_REPORT_FILE_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cohort::internal {

// Of the main rank alone; everything is local. Lines are appended to what stands at a path, so it is looked at first: what is
// there must be empty, a report of the same kind, or no regular file (a pipe, a terminal). Not thread-safe.
class ReportFile {
 public:
  // Every line begins with `{"FIRST_KEY":`, by which the kind is known.
  ReportFile(std::string path, std::string_view first_key);
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;
  ~ReportFile();

  // Whether lines can be appended, as far as this shows without making anything. Before the first Append.
  //
  // Errors: InvalidArgument: a directory, or a file that is no such report (names what it begins with); FailedPrecondition: a
  // pipe that nobody reads; others of open(2), such as NotFound of a missing directory.
  absl::Status Check();

  // Makes the file if it is missing, and appends `line`, which ends with a newline, in one write, so that the lines of several
  // jobs do not mix; behind a newline if the last one was cut. Does not wait for whoever reads a pipe, and does not end with it
  // (SIGPIPE). After an error the next call opens the file again.
  //
  // Errors: those of Check; ResourceExhausted if the disk or the pipe is full, after which the file may end in a part of the
  // line; others of write(2).
  absl::Status Append(std::string_view line);

 private:
  absl::Status Open(int flags);
  void Close();

  const std::string path_;
  const std::string beginning_;
  int fd_ = -1;
  bool is_cut_ = false;  // the file does not end with a newline
};

// Local. InvalidArgument if `report` is the directory of a run or a name in it that makes it one. Both as AbsolutePath takes
// them; neither need exist. The message begins with `what`, such as "save_report".
absl::Status CheckIsNotOfRun(std::string_view directory, std::string_view what, std::string_view report);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_REPORT_FILE_H_
