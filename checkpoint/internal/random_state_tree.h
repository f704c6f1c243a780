// File: random_state_tree.h
//
// For tests: any state.

#ifndef COHORT_CHECKPOINT_INTERNAL_RANDOM_STATE_TREE_H_
#define COHORT_CHECKPOINT_INTERNAL_RANDOM_STATE_TREE_H_

#include <cstddef>
#include <random>

#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

struct RandomState {
  StateTree tree;
  size_t num_tensors = 0;  // each of which is in the tree, some more than once
};

// With values of every kind, the odd ones included: NaNs with payloads, negative zero, keys with dots and dollars.
RandomState MakeRandomState(std::mt19937& random);

// Equal bit for bit: a NaN equals itself, and 0.0 is not -0.0.
bool SameBits(const StateTree& a, const StateTree& b);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_RANDOM_STATE_TREE_H_
