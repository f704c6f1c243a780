// File: duplicate_name.h

#ifndef COHORT_CHECKPOINT_INTERNAL_DUPLICATE_NAME_H_
#define COHORT_CHECKPOINT_INTERNAL_DUPLICATE_NAME_H_

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace cohort::internal {

// A name that occurs twice, if there is one. By sorting: takes no memory beside its argument.
inline std::optional<std::string_view> DuplicateName(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto found = std::adjacent_find(names.begin(), names.end());
  if (found == names.end()) return std::nullopt;
  return *found;
}

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_DUPLICATE_NAME_H_
