// File: tensor_difference.h

#ifndef COHORT_TOOLS_CKPT_TENSOR_DIFFERENCE_H_
#define COHORT_TOOLS_CKPT_TENSOR_DIFFERENCE_H_

#include <cstdint>

#include "ATen/core/Tensor.h"
#include "absl/functional/function_ref.h"

namespace cohort::ckpt {

// How two tensors of one dtype and shape differ.
struct TensorDifference {
  int64_t num_different = 0;  // elements whose bits differ: NaNs of equal bits do not, 0.0 and -0.0 do
  bool is_integral = false;
  uint64_t max_integral = 0;  // the greatest absolute difference, exact
  double max = 0;             // the same for other dtypes, of the elements below not counted
  int64_t num_nan = 0;        // elements that differ and are NaN on at least one side
};

// Local. Works in pieces, so that it needs little memory beyond the tensors'; calls `done_more` with the elements that
// are done. Throws what LibTorch throws.
TensorDifference Compare(const at::Tensor& a, const at::Tensor& b, absl::FunctionRef<void(int64_t)> done_more);

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_TENSOR_DIFFERENCE_H_
