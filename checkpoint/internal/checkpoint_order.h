// File: checkpoint_order.h

#ifndef COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_ORDER_H_
#define COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_ORDER_H_

#include "cohort/checkpoint/checkpoint_info.h"

namespace cohort::internal {

// Whether `a` was saved after `b`, two checkpoints of one run directory. A strict order. Two of one sequence number are
// there only if somebody has copied one: then the one of the higher step counts as newer, of equal steps the one of the
// longer name, and of equally long names the one that comes last by spelling.
inline bool IsNewer(const CheckpointInfo& a, const CheckpointInfo& b) {
  if (a.sequence != b.sequence) return a.sequence > b.sequence;
  if (a.step != b.step) return a.step > b.step;
  if (a.path.size() != b.path.size()) return a.path.size() > b.path.size();
  return a.path > b.path;
}

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_CHECKPOINT_ORDER_H_
