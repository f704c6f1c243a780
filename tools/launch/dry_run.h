// File: dry_run.h

#ifndef COHORT_TOOLS_LAUNCH_DRY_RUN_H_
#define COHORT_TOOLS_LAUNCH_DRY_RUN_H_

#include <string>
#include <string_view>
#include <vector>

#include "cohort/tools/launch/environment.h"
#include "cohort/tools/launch/output_plan.h"

namespace cohort::launch {

// `word` as a shell takes it for one word.
std::string ShellQuoted(std::string_view word);

// What --dry-run prints: for each rank of this machine a comment and a command for a shell that would start it by hand,
// with every variable that the launcher sets or removes.
std::string DescribeRanks(const JobPlan& plan, const Environment& inherited, const std::vector<std::string>& command,
                          const OutputPlan& outputs);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_DRY_RUN_H_
