// File: torch_file.h
//
// Writes .pt files that Python's torch.load(path, weights_only=True) returns as an ordinary dict of tensors.

#ifndef COHORT_CHECKPOINT_TORCH_FILE_H_
#define COHORT_CHECKPOINT_TORCH_FILE_H_

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort {

// Names and tensors, in the order they are written. Names must be unique.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Local. Writes `tensors` as a flat dict, in order, names letter for letter, to `file`. Tensors on another device are
// copied to the CPU one by one; non-contiguous ones are written with their strides made contiguous... (see .cc). Uses
// at most 64 MiB beyond the state.
//
// Errors, before anything is written:
//   InvalidArgument  a name twice, an undefined tensor, or a layout or dtype that the format does not hold (names it)
// and those of WritableFile::Append.
absl::Status WriteTorchFile(absl::Span<const std::pair<std::string, at::Tensor>> tensors, WritableFile& file);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_TORCH_FILE_H_
