#include "cohort/tools/launch/report.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cohort/tools/launch/signals.h"

namespace cohort::launch {
namespace {

std::string Consequence(const RankEnd& end) {
  const char* what = end.was_stopped        ? "stopped by the launcher"
                     : IsFailure(end.how)   ? "failed after it"
                     : IsPreempted(end.how) ? "was preempted"
                                            : "had finished";
  return absl::StrCat(what, " (", DescribeEnd(end.how), ")");
}

std::string NamedRanks(absl::Span<const int> ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", RankList(ranks));
}

}  // namespace

std::string DescribeEnd(const ProcessEnd& end) {
  if (end.signal == 0) return absl::StrCat("exited with code ", end.exit_code);
  return absl::StrCat("killed by ", SignalName(end.signal), end.core_dumped ? " (core dumped)" : "");
}

std::string DescribeRank(const RankEnd& end) { return absl::StrCat("rank ", end.rank, " (pid ", end.pid, ")"); }

std::string RankList(absl::Span<const int> ranks) {
  std::vector<std::string> parts;
  for (size_t first = 0; first < ranks.size();) {
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last >= first + 2) {
      parts.push_back(absl::StrCat(ranks[first], "-", ranks[last]));
    } else {
      for (size_t i = first; i <= last; ++i) parts.push_back(absl::StrCat(ranks[i]));
    }
    first = last + 1;
  }
  return absl::StrJoin(parts, ", ");
}

bool WasPreempted(absl::Span<const RankEnd> ends) {
  bool any = false;
  for (const RankEnd& end : ends) {
    if (IsFailure(end.how)) return false;
    any |= IsPreempted(end.how);
  }
  return any;
}

std::string DescribePreemption(absl::Span<const RankEnd> ends) {
  std::vector<int> preempted, finished;
  for (const RankEnd& end : ends) (IsPreempted(end.how) ? preempted : finished).push_back(end.rank);
  return absl::StrCat("preempted: ", NamedRanks(preempted), " exited with code ", kExitPreempted,
                      finished.empty() ? "" : absl::StrCat(", ", NamedRanks(finished), " with 0"),
                      "; the same command goes on");
}

std::vector<std::string> DescribeConsequences(absl::Span<const RankEnd> ends) {
  std::map<std::string, std::vector<int>> ranks_by_consequence;
  for (const RankEnd& end : ends) ranks_by_consequence[Consequence(end)].push_back(end.rank);
  std::vector<std::string> lines;
  for (const auto& [consequence, ranks] : ranks_by_consequence) {
    lines.push_back(absl::StrCat(NamedRanks(ranks), ": ", consequence));
  }
  return lines;
}

}  // namespace cohort::launch
