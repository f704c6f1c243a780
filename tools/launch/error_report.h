// File: error_report.h

#ifndef COHORT_TOOLS_LAUNCH_ERROR_REPORT_H_
#define COHORT_TOOLS_LAUNCH_ERROR_REPORT_H_

#include <string>
#include <vector>

namespace cohort::launch {

// What a rank left in its error file (TORCHELASTIC_ERROR_FILE, in the form of torch.distributed.elastic: JSON with a "message",
// which is a text or has a "message" of its own), as at most `max_lines` lines for people; empty if there is no such file. The
// file is the rank's, which may write anything: 64 KiB of it are looked at, links are not followed, control characters become
// "?", and what is no such report gives one line that says so.
std::vector<std::string> ReadErrorReport(const std::string& path, int max_lines);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_ERROR_REPORT_H_
