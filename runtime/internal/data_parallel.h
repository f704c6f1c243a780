// File: data_parallel.h
//
// DataParallel: what DistributedDataParallel does around a module's own forward, whatever that takes and returns.

#ifndef COHORT_RUNTIME_INTERNAL_DATA_PARALLEL_H_
#define COHORT_RUNTIME_INTERNAL_DATA_PARALLEL_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/nullability.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/distributed_data_parallel_options.h"
#include "cohort/runtime/process_group.h"

namespace c10d {
class ProcessGroup;
}  // namespace c10d
namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace cohort::internal {

class TorchBackend;
class TorchReducer;
class WrappedParameters;

// The methods and their errors are those of DistributedDataParallel.
class DataParallel {
 public:
  static absl::StatusOr<std::unique_ptr<DataParallel>> Create(ProcessGroup* absl_nonnull group,
                                                              std::shared_ptr<torch::nn::Module> module,
                                                              const DistributedDataParallelOptions& options);
  static absl::StatusOr<std::unique_ptr<DataParallel>> Create(c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                              std::shared_ptr<torch::nn::Module> module,
                                                              const DistributedDataParallelOptions& options);
  ~DataParallel();

  absl::Status BeforeForward();
  // `outputs` are the tensors in what forward returned; `is_known`: all of them.
  absl::Status AfterForward(std::vector<at::Tensor*> outputs, bool is_known);
  absl::Status Backward(const at::Tensor& loss);

  // Tells the other ranks that this one failed in `what`; returns what they get.
  absl::Status Fail(std::string_view what, const absl::Status& why);

  absl::StatusOr<bool> EveryRankHasBatch(bool mine);
  void AddNoSync(int change) { no_sync_ += change; }

 private:
  DataParallel(ProcessGroup* absl_nullable group, c10::intrusive_ptr<c10d::ProcessGroup> torch_group,
               std::shared_ptr<torch::nn::Module> module, const DistributedDataParallelOptions& options);

  bool IsSynchronized() const { return no_sync_ == 0; }
  // Collective: calls `function`, which starts operations on torch_group_ and waits for them.
  absl::Status Exchange(std::string_view name, absl::FunctionRef<absl::Status()> function);
  // Collective: the first state of the model, and the reducer.
  absl::Status Connect();
  absl::Status RunBackward(const at::Tensor& loss, bool is_averaged);
  // Why the reducer still waits for gradients after the backward of `loss`.
  absl::Status NotAveraged(const at::Tensor& loss) const;

  ProcessGroup* absl_nullable const group_;  // null over a group of LibTorch's own
  TorchBackend* absl_nullable const backend_;
  const c10::intrusive_ptr<c10d::ProcessGroup> torch_group_;  // null in a world of one
  const std::shared_ptr<torch::nn::Module> module_;
  const DistributedDataParallelOptions options_;
  std::unique_ptr<WrappedParameters> parameters_;
  std::unique_ptr<TorchReducer> reducer_;  // null in a world of one
  int no_sync_ = 0;
  // As Python has it: after a local Forward the next one does not send the buffers either.
  bool sends_buffers_ = true;
  // A synchronized Forward has had no Backward. The reducer takes the gradients of the next one, whatever loss it is of.
  bool is_backward_due_ = false;
  // A local Forward came after it, or after its Backward: also one that is not averaged is in order.
  bool may_be_local_ = false;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_DATA_PARALLEL_H_
