// File: options.h
//
// The launcher's command line: torchrun's names, in both spellings (--nproc-per-node, --nproc_per_node) and both forms
// (--flag=value, --flag value). It is not parsed by absl/flags because everything after the program belongs to the
// program.

#ifndef COHORT_TOOLS_LAUNCH_OPTIONS_H_
#define COHORT_TOOLS_LAUNCH_OPTIONS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/tools/launch/environment.h"

namespace cohort::launch {

// What the user asked for. Every value is in its range and they agree with each other.
struct Options {
  // Print HelpText() and do nothing else. The other fields have not been checked then.
  bool help = false;

  int nproc_per_node = 1;
  int nnodes = 1;
  int node_rank = 0;
  // Where rank 0 listens. An IPv6 address stands without brackets.
  std::string master_addr = "127.0.0.1";
  // Absent only if nnodes is 1: a free one is to be chosen.
  std::optional<int> master_port;
  // How long ranks may go on after they were asked to stop.
  absl::Duration grace = absl::Seconds(30);
  // The program and its arguments. Not empty.
  std::vector<std::string> command;
};

// Parses the arguments that follow the launcher's own name. MASTER_ADDR, MASTER_PORT and COHORT_LAUNCH_GRACE of
// `environment` stand in for flags that are not given; the first two are ignored inside a rank of another job.
//
// Errors:
//   InvalidArgument  an unknown flag (names the nearest known one), a missing, malformed or contradictory value (names
//                    it and what is allowed), or no program. One line, made to be shown to the user.
absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments, const Environment& environment);

// What --help prints.
std::string_view HelpText();

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_OPTIONS_H_
