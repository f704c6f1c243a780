// File: torch_backend.h
//
// TorchBackend: a Backend whose data plane is one of LibTorch's, and the seam to what works on tensors.

#ifndef COHORT_RUNTIME_INTERNAL_TORCH_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_TORCH_BACKEND_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "c10/core/Device.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/breakable_backend.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/steady_time.h"

namespace c10d {
class Backend;
class ProcessGroup;
class Work;
}  // namespace c10d

namespace cohort::internal {

// What a thread waits for that started an operation of LibTorch's: that it is over, or that the group is poisoned.
// Thread-safe. It is shared, because an operation that nothing can break off outlives the thread's interest in it.
class OperationWait {
 public:
  // Forgets the operation before and returns the number of the next one.
  uint64_t Begin();

  // The operation with that number is over; `error` is null if it succeeded.
  void End(uint64_t number, std::exception_ptr error);

  // The group is poisoned: nobody waits any more.
  void Poison();

  // Waits for the operation that began last.
  //
  // Errors: DeadlineExceeded, Aborted if poisoned, or the operation's own by the table in exception_status.h.
  absl::Status Wait(SteadyTime deadline);

 private:
  absl::Mutex mutex_;
  uint64_t number_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_over_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_poisoned_ ABSL_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ ABSL_GUARDED_BY(mutex_);
};

class TorchBackend : public Backend {
 public:
  explicit TorchBackend(absl_nonnull std::unique_ptr<ControlPlane> control);
  ~TorchBackend() override;

  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) final { return control_->Meet(std::move(arrival)); }
  absl::Status Leave(absl::Duration timeout) final { return control_->Leave(timeout); }
  absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited) final {
    return control_->Explain(name, error, waited);
  }
  absl::Status Abort(const absl::Status& why) final { return control_->Abort(why); }

  // Where the tensors of its collectives must be.
  virtual c10::Device device() const = 0;

  // LibTorch's own object, for collectives on tensors. Its operations are started in a function that Run calls, and
  // waited for with Await: Work::wait would not hear that a rank has died.
  virtual c10d::Backend& torch_backend() = 0;

  // Collective. Calls `function` as the data operation `name`, and returns OK if it does. Never throws. Its failure, by
  // exception too, is explained and poisons the group.
  absl::Status Run(std::string_view name, absl::Duration timeout,
                   absl::FunctionRef<absl::Status(SteadyTime deadline)> function);

  // As Run, for a function that runs the user's code in between: an error that no data operation has caused is this
  // rank's own. All ranks then get it as it is (Abort), and it is not looked for among the others.
  absl::Status RunUserCode(std::string_view name, absl::Duration timeout,
                           absl::FunctionRef<absl::Status(SteadyTime deadline)> function);

  // LibTorch's group over torch_backend(), for code of LibTorch's that starts operations and waits for them itself. Its
  // waits end when the group is poisoned. To be used in a function that RunUserCode calls.
  const c10::intrusive_ptr<c10d::ProcessGroup>& torch_group();

  // Waits until `work` is over; device work is ordered as Work::wait would. May throw what LibTorch throws.
  //
  // Errors: those of OperationWait::Wait.
  virtual absl::Status Await(const c10::intrusive_ptr<c10d::Work>& work, SteadyTime deadline) = 0;

 protected:
  // Breaks off, as far as LibTorch allows, what its threads are waiting for. The group is poisoned.
  virtual void BreakOff() = 0;

  // Calls `function`, which LibTorch gives no means to break off, in a thread of its own and waits until it is over, by
  // the rules of OperationWait::Wait. If that returns early the thread is left behind, so `function` must own what it
  // touches.
  absl::Status CallInThread(std::function<void()> function, SteadyTime deadline);

  const std::shared_ptr<OperationWait>& operation_wait() { return wait_; }
  ControlPlane& control() { return *control_; }

 private:
  // Calls `function` as a data operation, and turns its exceptions into a Status. `fail` says what becomes of that.
  absl::Status RunData(std::string_view name, absl::Duration timeout,
                       absl::FunctionRef<absl::Status(SteadyTime deadline)> function,
                       absl::FunctionRef<absl::Status(const absl::Status& status, absl::Duration waited)> fail);

  const std::shared_ptr<OperationWait> wait_;
  const std::shared_ptr<OpenOperations> open_operations_;
  c10::intrusive_ptr<c10d::ProcessGroup> torch_group_;  // null until it is asked for
  // After what its handler reaches.
  const std::unique_ptr<ControlPlane> control_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TORCH_BACKEND_H_
