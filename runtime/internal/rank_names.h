// File: rank_names.h

#ifndef COHORT_RUNTIME_INTERNAL_RANK_NAMES_H_
#define COHORT_RUNTIME_INTERNAL_RANK_NAMES_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::internal {

// For a message: "rank 3", "ranks 0 and 2", "ranks 0, 1, 2 and 97 more". There must be one.
inline std::string RankNames(const std::vector<int>& ranks) {
  constexpr size_t kMostNamed = 16;
  if (ranks.size() == 1) return absl::StrCat("rank ", ranks[0]);
  if (ranks.size() > kMostNamed) {
    return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.begin() + kMostNamed, ", "), " and ",
                        ranks.size() - kMostNamed, " more");
  }
  return absl::StrCat("ranks ", absl::StrJoin(ranks.begin(), ranks.end() - 1, ", "), " and ", ranks.back());
}

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_RANK_NAMES_H_
