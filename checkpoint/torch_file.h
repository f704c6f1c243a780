// File: torch_file.h
//
// WriteTorchFile: writes .pt files that Python's torch.load(path, weights_only=True) returns as an ordinary dict of
// tensors.

#ifndef COHORT_CHECKPOINT_TORCH_FILE_H_
#define COHORT_CHECKPOINT_TORCH_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// Names and tensors, in the order they are written. Names must be unique.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Local. Writes `tensors` to `file` (empty until then) as a flat dict, in order, names letter for letter, values bit
// for bit. Every tensor comes back on the CPU, detached, with the same dtype and shape.
//
// Tensors that share memory share it in the file and when loaded (tied weights), if they have the same dtype. Of a
// larger storage only the part that the tensors use is written. Dense tensors keep their strides; a view with holes
// comes back contiguous.
//
// The tensors must not change meanwhile. Memory beyond them: at most 64 MiB and some 300 bytes a tensor. Tensors on
// another device are copied in pieces.
//
// Errors, before anything is written:
//   InvalidArgument    a name twice or not UTF-8; an undefined tensor; one with no data (meta) or less than its shape
//                      needs (each names the tensor)
//   Unimplemented      a layout or dtype that the file would not hold exactly: sparse, nested, quantized, bits (each
//                      names the tensor)
// and later those of WritableFile::Append, and of copying from a device.
absl::Status WriteTorchFile(absl::Span<const std::pair<std::string, at::Tensor>> tensors, WritableFile& file);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_TORCH_FILE_H_
