// File: values.h
//
// The values of a state that are not tensors, one text each.

#ifndef COHORT_TOOLS_CKPT_VALUES_H_
#define COHORT_TOOLS_CKPT_VALUES_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/state_file.h"

namespace cohort::ckpt {

// Name (keys joined by ".") and text of every value of `file` that is no tensor, in order: 0.1, "text", None; lists and
// tuples stand before their items as "list of 2", "tuple of 2". Equal texts mean equal values, bit for bit. No tensor is
// read.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Values(const StateFile& file);

// As torch calls it: "float32".
std::string DtypeName(at::ScalarType type);

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_VALUES_H_
