// File: torch_file.h
//
// WriteTorchFile: writes .pt files that Python's torch.load(path, weights_only=True) returns as ordinary dicts, lists
// and tensors. StateFile reads them.

#ifndef COHORT_CHECKPOINT_TORCH_FILE_H_
#define COHORT_CHECKPOINT_TORCH_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// Names and tensors, in the order they are written. Names must be unique.
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Local. Writes `state` to `file` (empty until then): dicts (with str or int keys), lists, tuples, tensors, strings,
// ints, doubles, complex numbers, bools and None, in each other as they are; dicts keep their order, names are letter
// for letter, values bit for bit. Every tensor comes back on the CPU, detached, with the same dtype and shape. Typed
// containers come back as containers of anything; two names for one container come back as two.
//
// Tensors that share memory share it in the file and when loaded (tied weights), if they have the same dtype. Of a
// larger storage only the part that the tensors use is written. Dense tensors keep their strides; a view with holes
// comes back contiguous.
//
// The tensors must not change meanwhile. Memory beyond them: at most 64 MiB and some 500 bytes a value. Tensors on
// another device are copied in pieces.
//
// Errors, before anything is written, each with the place of the value (keys joined by "."):
//   InvalidArgument    a key or string is not UTF-8, or longer than 1 GiB; a key is neither str nor int; containers lie
//                      in each other deeper than 100; a tensor is undefined, has no data (meta) or less than its shape
//                      needs
//   Unimplemented      a value is of another kind; a tensor's layout or dtype is one that the file would not hold
//                      exactly: sparse, nested, quantized, bits
// and later those of WritableFile::Append, and of copying from a device.
absl::Status WriteTorchFile(const c10::IValue& state, WritableFile& file);

// The same for a flat dict. Errors: also InvalidArgument for a name that occurs twice.
absl::Status WriteTorchFile(absl::Span<const std::pair<std::string, at::Tensor>> tensors, WritableFile& file);

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_TORCH_FILE_H_
