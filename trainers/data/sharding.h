// File: sharding.h
//
// Which rank uses which row, and when.

#ifndef COHORT_TRAINERS_DATA_SHARDING_H_
#define COHORT_TRAINERS_DATA_SHARDING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cohort {

// The rows 0 to num_rows - 1 in the order in which epoch `epoch` uses them. Another order each epoch; for one seed and
// epoch the same on every rank and machine, so that ranks can shard it without talking.
std::vector<int64_t> EpochOrder(int64_t num_rows, uint64_t seed, int64_t epoch);

// Rank `rank`'s share of a batch: contiguous, disjoint from the others', together the whole batch; sizes differ by at
// most one. So every row of an epoch is used exactly once whatever the number of ranks: nothing is padded and nothing
// dropped. A share is empty if there are more ranks than rows.
absl::Span<const int64_t> ShareOf(absl::Span<const int64_t> batch, int rank, int world_size);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_SHARDING_H_
