// File: breakable_backend.h
//
// BreakableBackend: one of LibTorch's backends, every wait of which ends when the group is poisoned.

#ifndef COHORT_RUNTIME_INTERNAL_BREAKABLE_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_BREAKABLE_BACKEND_H_

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace cohort::internal {

// The operations of a BreakableBackend that are under way. Thread-safe; shared, because the poison may come from a
// thread that outlives the backend.
class OpenOperations : public std::enable_shared_from_this<OpenOperations> {
 public:
  // Returns a future that ends as `inner` does, or with an error as soon as the group is poisoned.
  c10::intrusive_ptr<c10::ivalue::Future> Follow(const c10::intrusive_ptr<c10::ivalue::Future>& inner);

  // Ends every operation that is under way, and every later one at once. Does not wait.
  void Poison();

  // Whether an operation has failed, by itself or by the poison.
  bool has_failed() const;

 private:
  struct Operation;

  // Ends the operation once.
  void End(const std::shared_ptr<Operation>& operation, c10::ivalue::Future* inner);

  mutable absl::Mutex mutex_;
  std::unordered_set<std::shared_ptr<Operation>> open_ ABSL_GUARDED_BY(mutex_);
  bool is_poisoned_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_failed_ ABSL_GUARDED_BY(mutex_) = false;
};

// For LibTorch's own code that waits in operations it has started itself, as the Reducer of data-parallel training does:
// it would not hear that a rank has died. Carries the operations that code needs, and throws on others.
class BreakableBackend final : public c10d::Backend {
 public:
  // `operations` is shared with whoever learns of the poison.
  BreakableBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<OpenOperations> operations);

  const std::string getBackendName() const override { return inner_->getBackendName(); }

  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override;
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override;

 private:
  c10::intrusive_ptr<c10d::Work> Follow(const c10::intrusive_ptr<c10d::Work>& work);

  const c10::intrusive_ptr<c10d::Backend> inner_;
  const std::shared_ptr<OpenOperations> operations_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_BREAKABLE_BACKEND_H_
