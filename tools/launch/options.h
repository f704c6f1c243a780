// File: options.h
//
// What the launcher was asked to do: its flags and the variables that stand for flags, understood and checked together.

#ifndef COHORT_TOOLS_LAUNCH_OPTIONS_H_
#define COHORT_TOOLS_LAUNCH_OPTIONS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/tools/launch/device_count.h"
#include "cohort/tools/launch/environment.h"
#include "cohort/tools/launch/output_plan.h"

namespace cohort::launch {

// What the user asked for. Every value is in its range and they agree with each other.
struct Options {
  // Print HelpText(), or what a rank would find in this environment, and do nothing else. The other fields have not
  // been set then.
  bool help = false;
  bool explain = false;

  // Print what would be started, and start nothing.
  bool dry_run = false;

  int nproc_per_node = 1;
  int nnodes = 1;
  int node_rank = 0;
  // Where rank 0 listens. An IPv6 address stands without brackets.
  std::string master_addr = "127.0.0.1";
  // Absent only if nnodes is 1: a free one is to be chosen.
  std::optional<int> master_port;
  // The job's name. Absent: one is to be made.
  std::optional<std::string> run_id;
  std::string role = "default";
  // How often the ranks may be started again after a failure. 0 if nnodes is not 1.
  int max_restarts = 0;
  // How long ranks may go on after they were asked to stop.
  absl::Duration grace = absl::Seconds(30);
  // Where the directory of this launch is to be made. Absent: nobody asked for it.
  std::optional<std::string> log_dir;
  // As long as nproc_per_node.
  OutputPlan outputs = OutputPlan(1);
  // The program and its arguments. Not empty.
  std::vector<std::string> command;
};

// What --nproc-per-node=gpu, cpu and auto count; asked only if needed.
struct Devices {
  std::function<absl::StatusOr<int>()> count_gpus = [] { return CountGpus(); };
  std::function<int()> count_cpus = [] { return CountCpus(); };
};

// Parses the arguments that follow the launcher's own name. Flags that are not given may be in `environment`:
// torchrun's PET_..., then COHORT_LAUNCH_GRACE, MASTER_ADDR and MASTER_PORT; of these only COHORT_LAUNCH_GRACE counts
// inside a rank of another job.
//
// Errors:
//   InvalidArgument  an unknown flag (names the nearest known one), one that means nothing here, a missing, malformed
//                    or contradictory value (names it and what is allowed), devices that are not there, or no program.
//                    One line, made to be shown to the user.
absl::StatusOr<Options> ParseOptions(absl::Span<const char* const> arguments, const Environment& environment,
                                     const Devices& devices = {});

// What --help prints.
std::string_view HelpText();

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_OPTIONS_H_
