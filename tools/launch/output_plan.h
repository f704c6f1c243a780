// File: output_plan.h
//
// Where the ranks' output goes: the console, files, or both. From torchrun's --redirects, --tee and
// --local-ranks-filter.

#ifndef COHORT_TOOLS_LAUNCH_OUTPUT_PLAN_H_
#define COHORT_TOOLS_LAUNCH_OUTPUT_PLAN_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::launch {

// Of one stream of a rank.
struct StreamPlan {
  bool to_console = true;
  bool to_file = false;

  bool operator==(const StreamPlan&) const = default;
};

struct RankOutputPlan {
  StreamPlan out;
  StreamPlan err;

  bool operator==(const RankOutputPlan&) const = default;
};

// By local rank.
using OutputPlan = std::vector<RankOutputPlan>;

// The values of the flags, as given; empty: not given.
struct OutputFlags {
  std::string_view redirects;
  std::string_view tee;
  std::string_view local_ranks_filter;
};

// What is redirected goes to a file alone; what is teed goes to a file and to the console, also if it is redirected as
// well; the rest goes to the console. Of ranks that the filter does not list nothing goes to the console.
//
// --redirects and --tee say which streams: 0 none, 1 standard output, 2 standard error, 3 both; for all ranks ("3") or
// by local rank ("0:1,3:3"; those not named have 0). The filter is a list of local ranks ("0,3").
//
// Errors:
//   InvalidArgument  malformed, a rank that is not there or is named twice: one line, made to be shown to the user.
absl::StatusOr<OutputPlan> MakeOutputPlan(const OutputFlags& flags, int nproc_per_node);

// Whether any stream goes to a file.
bool HasFiles(const OutputPlan& plan);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_OUTPUT_PLAN_H_
