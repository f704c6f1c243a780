// File: shared_group.h
//
// SharedGroup: the process group that all TESTs of a multiprocess_test use, since a process can join only one.

#ifndef COHORT_TESTS_HARNESS_SHARED_GROUP_H_
#define COHORT_TESTS_HARNESS_SHARED_GROUP_H_

#include "cohort/runtime/process_group.h"

namespace cohort::testing {

// Collective. Connects on the first call (gloo, 30 s to meet and 30 s for a collective: shorter than the limit of a
// TEST, so that what hangs is explained by the group first); later calls return the same group, at once. Ends the
// program with the error if the ranks cannot meet. After the last TEST the ranks leave together.
ProcessGroup& SharedGroup();

}  // namespace cohort::testing

#endif  // COHORT_TESTS_HARNESS_SHARED_GROUP_H_
