// File: state_pickle.h
//
// PickleState: the pickle of a .pt file.

#ifndef COHORT_CHECKPOINT_INTERNAL_STATE_PICKLE_H_
#define COHORT_CHECKPOINT_INTERNAL_STATE_PICKLE_H_

#include <string>

#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

// Local. Writes what ReadPickle reads as the same state, and torch.load(weights_only=True) as the same values: dict,
// list, tuple and so on; strings are UTF-8. Storage i of `state` gets the key "i"; of the storages only their sizes are
// used, which are whole numbers of elements.
//
// Tensors that share a storage must have the same dtype, or all of them dtypes without a class of storage in Python
// (DtypeInfo::storage).
std::string PickleState(const StoredState& state);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_STATE_PICKLE_H_
