// File: tensor_collectives.h
//
// Collectives on tensors, for programs that do not need more than a few of them.
//
// Every function but TensorDevice is collective: all ranks bring tensors of the same shapes and types, in the same
// order. It blocks until the result is there, at most group.timeout(), and changes the tensors in place; parameters
// too, without their gradients' knowledge. Tensors must be dense and on TensorDevice(group). Results are the same on
// all ranks, bit for bit, and from run to run. Tensors of one type travel together, so one call with many is faster
// than many calls. In a world of one nothing happens.
//
// Errors: those of ProcessGroup, all of which poison the group. Among them
//   InvalidArgument     a tensor that is undefined, sparse, on another device, or of a type that has no mean
//   FailedPrecondition  on gloo: a rank brings other tensors than the main rank (says who, and what both bring)
//   Unimplemented       the group's backend carries no tensors (testing::ThreadGroup)
// On nccl, ranks that bring different tensors are not told apart from ranks that do not come.

#ifndef COHORT_RUNTIME_TENSOR_COLLECTIVES_H_
#define COHORT_RUNTIME_TENSOR_COLLECTIVES_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "cohort/runtime/process_group.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace at {
class Tensor;
}  // namespace at

namespace cohort {

// Local. Where tensors must be: the CPU with gloo and in a world of one, this rank's GPU with nccl.
c10::Device TensorDevice(ProcessGroup& group);

// Replaces each tensor by its sum over all ranks. On gloo, Half and BFloat16 need a Gloo that was built with torch dtypes, as
// the one in LibTorch's wheels is; one without them (Debian's) is an Internal error, "Invalid scalar type".
absl::Status AllReduceSum(ProcessGroup& group, absl::Span<const at::Tensor> tensors);

// Replaces each tensor by its mean over all ranks: the sum divided by the world size. For floating point types.
absl::Status AllReduceMean(ProcessGroup& group, absl::Span<const at::Tensor> tensors);

// Replaces each tensor by the main rank's.
absl::Status BroadcastTensors(ProcessGroup& group, absl::Span<const at::Tensor> tensors);

}  // namespace cohort

#endif  // COHORT_RUNTIME_TENSOR_COLLECTIVES_H_
