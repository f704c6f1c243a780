// Includes a header of a target that its own does not name, but that comes with one that it names.

#include <string>

#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"

namespace cohort {

std::string Describe(const ProcessGroup& group);
std::string Describe(const ProcessGroup& group) { return group.rank() == RankInfo{}.rank ? "main" : "other"; }

}  // namespace cohort
