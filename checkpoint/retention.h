// File: retention.h
//
// PlanRetention: which of a run's checkpoints may go. A pure function of what there is and of a policy.

#ifndef COHORT_CHECKPOINT_RETENTION_H_
#define COHORT_CHECKPOINT_RETENTION_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_info.h"

namespace cohort {

// The best `count` checkpoints by a metric.
struct KeepBest {
  std::string metric;
  enum class Order { kLeast, kGreatest } order = Order::kLeast;
  int64_t count = 1;  // at least 1
};

// A checkpoint stays if any of these says so. Without `newest` all stay. "First" and "last" go by CheckpointInfo::sequence,
// which no clock that is set back confuses.
struct RetentionPolicy {
  // The N that were saved last; at least 1.
  std::optional<int64_t> newest;
  // Of every so many steps (0 up to, not including, N; N up to 2 N; ...) the one of the lowest step, and if several have it
  // the one saved last; at least 1.
  std::optional<int64_t> one_every_steps;
  // Of every so long a time, counted from 1970-01-01 UTC, the one that was saved first; more than 0, and finite.
  std::optional<absl::Duration> one_every;
  std::vector<KeepBest> best;
};

// Local. InvalidArgument, naming the field, its value and what is allowed.
absl::Status CheckRetentionPolicy(const RetentionPolicy& policy);

// Local. The places in `checkpoints` of those that `policy`, which must pass CheckRetentionPolicy, does not keep: the one
// saved first comes first. `checkpoints` are the complete ones of one run, in any order. If those are removed, the same policy
// keeps all that are left.
//
// Never among them: the one saved last, and those that are pinned. Best by a metric: a number before another as the order
// says; NaN after all numbers; without the metric after NaN; of equals the one saved last. So the best one is never among
// them as long as the policy names its metric.
std::vector<size_t> PlanRetention(absl::Span<const CheckpointInfo> checkpoints, const RetentionPolicy& policy);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_RETENTION_H_
