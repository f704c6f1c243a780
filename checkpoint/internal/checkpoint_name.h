// File: checkpoint_name.h
//
// The names of checkpoints in the directory of their run.

#ifndef COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_NAME_H_
#define COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_NAME_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace cohort::internal {

// What the names of checkpoints begin with; what begins so and is no such name is not a checkpoint.
inline constexpr std::string_view kCheckpointPrefix = "step_";
// The symlink, beside them, to the one saved last.
inline constexpr std::string_view kLatestName = "latest";

// The name of a checkpoint's directory: "step_00001200", and "step_00001200-2" for the second attempt to find one that
// is free. `step` is at least 0, `attempt` at least 1.
std::string CheckpointName(int64_t step, int attempt);

// The step in a name, if it is one that CheckpointName makes, or one of another number of leading zeros.
std::optional<int64_t> ParseCheckpointName(std::string_view name);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_NAME_H_
