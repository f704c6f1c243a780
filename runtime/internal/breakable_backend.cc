#include "cohort/runtime/internal/breakable_backend.h"

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/synchronization/mutex.h"
#include "c10/util/Exception.h"
#include "c10/util/intrusive_ptr.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"
#include "torch/csrc/distributed/c10d/Work.hpp"

namespace cohort::internal {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// LibTorch's own wrapping of a future forgets errors when it is waited for.
class FutureWork final : public c10d::Work {
 public:
  explicit FutureWork(FuturePtr future) : future_(std::move(future)) {}

  bool isCompleted() override { return future_->completed(); }
  bool isSuccess() const override { return future_->hasValue(); }
  std::exception_ptr exception() const override { return future_->hasError() ? future_->exception_ptr() : nullptr; }
  // The operation has its own timeout.
  bool wait(std::chrono::milliseconds) override {
    future_->waitAndThrow();
    return true;
  }
  FuturePtr getFuture() override { return future_; }

 private:
  const FuturePtr future_;
};

std::exception_ptr PoisonedError() {
  return std::make_exception_ptr(
      c10::DistError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, "the group has failed"));
}

}  // namespace

struct OpenOperations::Operation {
  explicit Operation(FuturePtr made) : future(std::move(made)) {}
  const FuturePtr future;
};

FuturePtr OpenOperations::Follow(const FuturePtr& inner) {
  auto operation =
      std::make_shared<Operation>(c10::make_intrusive<c10::ivalue::Future>(inner->elementType(), inner->devices()));
  bool is_poisoned = false;
  {
    absl::MutexLock lock(mutex_);
    open_.insert(operation);
    is_poisoned = is_poisoned_;
  }
  if (is_poisoned) {
    End(operation, nullptr);
  } else {
    inner->addCallback(
        [self = shared_from_this(), operation](c10::ivalue::Future& future) { self->End(operation, &future); });
  }
  return operation->future;
}

void OpenOperations::Poison() {
  std::unordered_set<std::shared_ptr<Operation>> open;
  {
    absl::MutexLock lock(mutex_);
    is_poisoned_ = true;
    open = open_;
  }
  for (const std::shared_ptr<Operation>& operation : open) End(operation, nullptr);
}

void OpenOperations::End(const std::shared_ptr<Operation>& operation, c10::ivalue::Future* inner) {
  const bool has_failed = inner == nullptr || inner->hasError();
  {
    absl::MutexLock lock(mutex_);
    if (open_.erase(operation) == 0) return;  // it has ended
    has_failed_ = has_failed_ || has_failed;
  }
  if (inner == nullptr) {
    operation->future->setError(PoisonedError());
  } else if (inner->hasError()) {
    operation->future->setError(inner->exception_ptr());
  } else {
    operation->future->markCompleted(inner->value());
  }
}

bool OpenOperations::has_failed() const {
  absl::MutexLock lock(mutex_);
  return has_failed_;
}

BreakableBackend::BreakableBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<OpenOperations> operations)
    : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), operations_(std::move(operations)) {}

WorkPtr BreakableBackend::Follow(const WorkPtr& work) {
  return c10::make_intrusive<FutureWork>(operations_->Follow(work->getFuture()));
}

WorkPtr BreakableBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  return Follow(inner_->broadcast(tensors, options));
}

WorkPtr BreakableBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  return Follow(inner_->allreduce(tensors, options));
}

WorkPtr BreakableBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                    const c10d::AllgatherOptions& options) {
  return Follow(inner_->allgather(outputs, inputs, options));
}

}  // namespace cohort::internal
