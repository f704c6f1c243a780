// File: tensor_collectives.h
//
// Collectives on tensors, for programs that do not need more than a few of them.
//
// Every function is collective: all ranks bring tensors of the same shapes and types in the same order. It blocks until the result
// is there, at most group.timeout(). Tensors must be dense and on the device of the group's backend: the CPU with gloo,
// this rank's GPU with nccl. Results are the same on all ranks, bit for bit, and from run to run. In a world of one nothing happens.
//
// Errors: those of ProcessGroup, and
//   InvalidArgument     a tensor that is undefined, sparse or on another device. Found before anything is sent; this rank brings nothing
//                       and poisons the group, so that the others learn of it.
//   FailedPrecondition  with gloo: ranks bring different tensors (names the ranks and what they bring)

#ifndef COHORT_RUNTIME_TENSOR_COLLECTIVES_H_
#define COHORT_RUNTIME_TENSOR_COLLECTIVES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "cohort/runtime/process_group.h"

namespace at {
class Tensor;
}  // namespace at

namespace cohort {

// Local. Where tensors must be: the CPU with gloo and in a world of one, this rank's GPU with nccl.
c10::Device TensorDevice(ProcessGroup& group);

// Replaces each tensor by its sum over all ranks.
absl::Status AllReduceSum(ProcessGroup& group, absl::Span<const at::Tensor> tensors);

// Replaces each tensor by its mean over all ranks: the sum divided by the world size. For floating point types.
absl::Status AllReduceMean(ProcessGroup& group, absl::Span<const at::Tensor> tensors);

// Replaces each tensor by the main rank's.
absl::Status BroadcastTensors(ProcessGroup& group, absl::Span<const at::Tensor> tensors);

}  // namespace cohort

#endif  // COHORT_RUNTIME_TENSOR_COLLECTIVES_H_
