// File: distributed_data_parallel.h
//
// DistributedDataParallel: trains one model on all ranks, each on its own share of the data: what Python's
// torch.nn.parallel.DistributedDataParallel does, by the same Reducer of LibTorch's. Gradients are averaged over the
// ranks, in buckets, while backward computes the next ones.
//
//   Net net(...);                                          // TORCH_MODULE(Net), or any torch::nn::Module
//   ABSL_ASSIGN_OR_RETURN(auto ddp, cohort::DistributedDataParallel<NetImpl>::Create(group, net.ptr()));
//   torch::optim::SGD optimizer(net->parameters(), 0.1);
//   for (...) {
//     optimizer.zero_grad();
//     ABSL_ASSIGN_OR_RETURN(at::Tensor output, ddp->Forward(features));       // any inputs and outputs that forward has
//     ABSL_RETURN_IF_ERROR(ddp->Backward(torch::mse_loss(output, targets)));
//     optimizer.step();                                    // the same on every rank
//   }
//
// The module stays the program's own: it is saved and evaluated as it is, and its names have no prefix.
//
// Every rank makes the same calls in the same order; Create, Forward and Backward are collective. Each Forward is followed by
// one Backward, with two exceptions that are local and wait for nobody: under NoSync (which says when it still does), and
// when gradients are off (at::NoGradGuard) in a module without buffers.
//
// Failure: what fails in one of them poisons the group, as in ProcessGroup; all ranks get the error of the one that failed.
// If a rank cannot come to the next call, because its data are broken, it calls ProcessGroup::Abort. Not thread-safe.

#ifndef COHORT_RUNTIME_DISTRIBUTED_DATA_PARALLEL_H_
#define COHORT_RUNTIME_DISTRIBUTED_DATA_PARALLEL_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/distributed_data_parallel_options.h"
#include "cohort/runtime/internal/data_parallel.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/runtime/visit_tensors.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// `Module` is a torch::nn::Module, or holds one that ptr() returns (torch::nn::AnyModule).
template <typename Module>
class DistributedDataParallel {
 public:
  // Collective. The parameters and buffers of `module` become the main rank's on every rank. `group` must outlive the
  // object; `module` is shared. Parameters that need no gradient now are left alone by Backward; the set of parameters must
  // not change any more.
  //
  // In a world of one nothing is exchanged or compressed.
  //
  // Errors, the same on all ranks:
  //   InvalidArgument     the ranks' modules or options differ (says which rank, in which parameter or buffer, and how);
  //                       a parameter or buffer cannot be sent (sparse, expanded, or of a type such as int16);
  //                       no parameter needs a gradient; one is on another device than TensorDevice(group), or
  //                       in a living DistributedDataParallel already; options out of range
  //   Unimplemented       the group's backend carries no tensors (testing::ThreadGroup)
  //   and those of ProcessGroup, also of one that has been poisoned
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      ProcessGroup* absl_nonnull group, absl_nonnull std::shared_ptr<Module> module,
      const DistributedDataParallelOptions& options = {}) {
    return Wrap(internal::DataParallel::Create(group, Inside(module), options), module);
  }

  // The same over a group of LibTorch's own, whose other ranks may be Python's DistributedDataParallel with the same
  // options: gradient for gradient the same operations. Nobody is told when a rank fails: the others find out as that
  // group does, mostly at its timeout. Of modules that differ only the parameters' number, sizes and types are found out.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      c10::intrusive_ptr<c10d::ProcessGroup> group, absl_nonnull std::shared_ptr<Module> module,
      const DistributedDataParallelOptions& options = {}) {
    return Wrap(internal::DataParallel::Create(std::move(group), Inside(module), options), module);
  }

  // Returns what the module's forward does. Before that the buffers of the main rank, if there are any, replace those of
  // the others, unless the options or NoSync say otherwise.
  //
  // Errors:
  //   FailedPrecondition  the Forward before has had no Backward; parameters or buffers are not what they were (names one)
  //   InvalidArgument     find_unused_parameters or static_graph, and the output is of a type that VisitTensors does not know
  //   what forward threw, by torch_status.h's table, as "rank K: TEXT"; and those of ProcessGroup
  template <typename... Inputs>
  auto Forward(Inputs&&... inputs)
      -> absl::StatusOr<std::remove_cvref_t<decltype(std::declval<Module&>().forward(std::declval<Inputs>()...))>> {
    if (absl::Status status = core_->BeforeForward(); !status.ok()) return status;
    auto output = InvokeTorch([&] { return module_->forward(std::forward<Inputs>(inputs)...); });
    if (!output.ok()) return core_->Fail("Forward", output.status());
    std::vector<at::Tensor*> tensors;
    const bool is_known = internal::VisitAllTensors(*output, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
    if (absl::Status status = core_->AfterForward(std::move(tensors), is_known); !status.ok()) return status;
    return output;
  }

  // Adds the gradients of `loss`, a scalar on every rank, to what is in each parameter's grad(). The first Backward after
  // a Forward that was not local makes that the mean over all ranks: of this and of all local Backwards before it. Local
  // Forwards may lie in between; their own Backwards come after it, and are local as all others.
  //
  // Waits for the others' gradients at most group.timeout(). On nccl it returns when the averaging has been submitted, as
  // LibTorch does; what fails then is met by a later collective.
  //
  // Errors:
  //   FailedPrecondition  there was no Forward since the last Backward
  //   InvalidArgument     the loss is undefined, not one real number, or depends on nothing that needs a gradient;
  //                       parameters got no gradient (names them): without find_unused_parameters or static_graph every
  //                       one must, on every rank
  //   what backward threw, as "rank K: TEXT"; and those of ProcessGroup
  absl::Status Backward(const at::Tensor& loss) { return core_->Backward(loss); }

  // Collective. Whether every rank has another batch: for ranks with unequal numbers of them, which ask before each
  // Forward and all stop when the first has none. Costs one rendezvous.
  //
  // Errors: those of ProcessGroup::Agree. Not for a group of LibTorch's own (Unimplemented).
  absl::StatusOr<bool> EveryRankHasBatch(bool mine) { return core_->EveryRankHasBatch(mine); }

  // While an active one lives a Forward is local, and so is its Backward, whenever that comes: gradients add up. For
  // accumulation over micro-batches:
  //
  //   auto no_sync = ddp->NoSync(micro + 1 < num_micro_batches);
  //
  // As in Python, the first of several local Forwards still sends the buffers, and the one after the first Backward the
  // new buckets, so all ranks make it.
  class NoSyncScope {
   public:
    NoSyncScope(internal::DataParallel& core, bool is_active) : core_(core), change_(is_active ? 1 : 0) {
      core_.AddNoSync(change_);
    }
    NoSyncScope(const NoSyncScope&) = delete;
    NoSyncScope& operator=(const NoSyncScope&) = delete;
    ~NoSyncScope() { core_.AddNoSync(-change_); }

   private:
    internal::DataParallel& core_;
    const int change_;
  };
  [[nodiscard]] NoSyncScope NoSync(bool is_active = true) { return NoSyncScope(*core_, is_active); }

  const std::shared_ptr<Module>& module() const { return module_; }

 private:
  DistributedDataParallel(std::unique_ptr<internal::DataParallel> core, std::shared_ptr<Module> module)
      : core_(std::move(core)), module_(std::move(module)) {}

  static std::shared_ptr<torch::nn::Module> Inside(const std::shared_ptr<Module>& module) {
    if constexpr (std::derived_from<Module, torch::nn::Module>) {
      return module;
    } else {
      return module->ptr();
    }
  }

  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Wrap(
      absl::StatusOr<std::unique_ptr<internal::DataParallel>> core, const std::shared_ptr<Module>& module) {
    if (!core.ok()) return core.status();
    return std::unique_ptr<DistributedDataParallel>(new DistributedDataParallel(*std::move(core), module));
  }

  const std::unique_ptr<internal::DataParallel> core_;
  const std::shared_ptr<Module> module_;
};

}  // namespace cohort

#endif  // COHORT_RUNTIME_DISTRIBUTED_DATA_PARALLEL_H_
