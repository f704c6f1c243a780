// File: saved_tensor.h
//
// SavedTensor: a tensor as a file takes it, for both formats.

#ifndef COHORT_CHECKPOINT_INTERNAL_SAVED_TENSOR_H_
#define COHORT_CHECKPOINT_INTERNAL_SAVED_TENSOR_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/internal/dtype.h"

namespace cohort::internal {

// nullopt: no file holds it exactly.
std::optional<Dtype> DtypeOf(at::ScalarType type);
at::ScalarType ScalarTypeOf(Dtype dtype);

struct SavedTensor {
  // Detached, and without the marks "conjugated" and "negated", so that its memory is its value.
  at::Tensor tensor;
  Dtype dtype = Dtype::kFloat32;
  bool conjugated = false;
  bool negated = false;
  // What it uses of its storage, in elements.
  int64_t begin = 0;
  int64_t end = 0;
};

// Errors, as WriteTorchFile promises them; each names the tensor.
absl::StatusOr<SavedTensor> Savable(std::string_view name, const at::Tensor& tensor);

// Calls `append` with the elements' bytes, in order, in one piece or in several; returns its first error. Tensors that
// are not plain CPU memory are copied in pieces of 16 MiB.
absl::Status AppendElements(const at::Tensor& tensor, absl::FunctionRef<absl::Status(std::string_view)> append);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SAVED_TENSOR_H_
