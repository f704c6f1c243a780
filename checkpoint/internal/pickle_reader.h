// File: pickle_reader.h
//
// ReadPickle: what the pickle of a .pt file says, without running any of it.

#ifndef COHORT_CHECKPOINT_INTERNAL_PICKLE_READER_H_
#define COHORT_CHECKPOINT_INTERNAL_PICKLE_READER_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/pickle_machine.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

// Local. `pickle` is of protocol 1 to 5, as torch.save writes them (2 is the usual). What becomes of Python's values:
//
//   None, bool, int, float, complex, str, list, tuple, dict   themselves; keys are str or int
//   OrderedDict                    a dict; attributes such as state_dict's `_metadata` are dropped
//   torch.Tensor, torch.nn.Parameter   a tensor, dense ones only; a parameter's Python attributes are dropped
//   torch.Size, torch.device       a tuple of integers; the device's name as a string, such as "cuda:0"
//   anything else                  refused by name, saying where it stands
//
// A tensor object that stands in several places is the same tensor there; tensors that share a storage share it. Other
// shared values become equal ones. The tables of the result hold what the tree mentions, in the order of the tree.
//
// Memory: until the pickle is known to be good, at most `memory_limit` beside it; then the result, which takes at most
// that much more than if no value stood in two places (or else the pickle is refused).
//
// Errors: InvalidArgument, saying what was found and at which byte, or in which value; those of `find_storage`.
absl::StatusOr<StoredState> ReadPickle(std::string_view pickle, int64_t memory_limit, FindStorage find_storage);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_PICKLE_READER_H_
