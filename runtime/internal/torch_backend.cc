#include "cohort/runtime/internal/torch_backend.h"

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>  // NOLINT: the standard thread is all that is needed
#include <utility>

#include "absl/base/nullability.h"
#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cohort/runtime/error_file.h"
#include "cohort/runtime/internal/breakable_backend.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/exception_status.h"
#include "cohort/runtime/internal/steady_time.h"
#include "torch/csrc/distributed/c10d/ProcessGroup.hpp"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace cohort::internal {

uint64_t OperationWait::Begin() {
  absl::MutexLock lock(mutex_);
  is_over_ = false;
  error_ = nullptr;
  return ++number_;
}

void OperationWait::End(uint64_t number, std::exception_ptr error) {
  absl::MutexLock lock(mutex_);
  if (number == number_) {
    is_over_ = true;
    error_ = std::move(error);
  }
}

void OperationWait::Poison() {
  absl::MutexLock lock(mutex_);
  is_poisoned_ = true;
}

absl::Status OperationWait::Wait(SteadyTime deadline) {
  absl::MutexLock lock(mutex_);
  const auto settled = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return is_over_ || is_poisoned_; };
  mutex_.AwaitWithTimeout(absl::Condition(&settled), Between(SteadyNow(), deadline));
  if (is_over_) {
    return error_ == nullptr ? absl::OkStatus() : StatusFromException(error_, SteadyNow() >= deadline);
  }
  if (is_poisoned_) {
    return absl::AbortedError("the group has failed");
  }
  return absl::DeadlineExceededError("not over in time");
}

TorchBackend::TorchBackend(absl_nonnull std::unique_ptr<ControlPlane> control)
    : wait_(std::make_shared<OperationWait>()),
      open_operations_(std::make_shared<OpenOperations>()),
      control_(std::move(control)) {
  control_->SetPoisonHandler([wait = wait_, operations = open_operations_](const absl::Status& cause) {
    // First: once the caller hears of it the process may end.
    WriteErrorFile(cause);
    wait->Poison();
    operations->Poison();
  });
}

TorchBackend::~TorchBackend() = default;

absl::Status TorchBackend::RunData(
    std::string_view name, absl::Duration timeout, absl::FunctionRef<absl::Status(SteadyTime deadline)> function,
    absl::FunctionRef<absl::Status(const absl::Status& status, absl::Duration waited)> fail) {
  const SteadyTime start = SteadyNow();
  const SteadyTime deadline = After(start, timeout);
  ABSL_RETURN_IF_ERROR(control_->EnterData(name));
  const absl::Cleanup exit = [this] { control_->ExitData(); };
  absl::Status status;
  try {
    status = function(deadline);
  } catch (...) {
    status = StatusFromException(std::current_exception(), SteadyNow() >= deadline);
  }
  if (status.ok()) {
    return status;
  }
  // First explained, then broken off: the others should hear the cause before they see connections close.
  absl::Status cause = fail(status, Between(start, SteadyNow()));
  BreakOff();
  return cause;
}

absl::Status TorchBackend::Run(std::string_view name, absl::Duration timeout,
                               absl::FunctionRef<absl::Status(SteadyTime deadline)> function) {
  return RunData(name, timeout, function, [&](const absl::Status& status, absl::Duration waited) {
    return control_->Explain(name, status, waited);
  });
}

absl::Status TorchBackend::RunUserCode(std::string_view name, absl::Duration timeout,
                                       absl::FunctionRef<absl::Status(SteadyTime deadline)> function) {
  return RunData(name, timeout, function, [&](const absl::Status& status, absl::Duration waited) {
    if (open_operations_->has_failed()) return control_->Explain(name, status, waited);
    return control_->Abort(absl::Status(status.code(), absl::StrCat(name, ": ", status.message())));
  });
}

const c10::intrusive_ptr<c10d::ProcessGroup>& TorchBackend::torch_group() {
  if (torch_group_.defined()) return torch_group_;
  using Type = c10d::ProcessGroup::BackendType;
  const auto inner = c10::intrusive_ptr<c10d::Backend>::reclaim_copy(&torch_backend());
  torch_group_ = c10::make_intrusive<c10d::ProcessGroup>(c10::intrusive_ptr<c10d::Store>(), inner->getRank(),
                                                         inner->getSize());
  // An operation of NCCL's is over for the CPU once it has been submitted: there is nothing to wait for.
  const bool waits = device().is_cpu();
  if (!waits) torch_group_->setBoundDeviceId(device());
  const Type type = waits ? Type::GLOO : Type::NCCL;
  torch_group_->setBackend(
      device().type(), type,
      waits ? c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<BreakableBackend>(inner, open_operations_)) : inner);
  torch_group_->setDefaultBackend(type);
  return torch_group_;
}

absl::Status TorchBackend::CallInThread(std::function<void()> function, SteadyTime deadline) {
  auto call = [number = wait_->Begin(), wait = wait_, function = std::move(function)]() mutable {
    std::exception_ptr error;
    try {
      function();
    } catch (...) {
      error = std::current_exception();
    }
    function = nullptr;  // who waits may count on it that the thread holds nothing any more
    wait->End(number, error);
  };
  try {
    std::thread(std::move(call)).detach();
  } catch (...) {
    return StatusFromException(std::current_exception(), /*time_is_up=*/false);  // no more threads
  }
  return wait_->Wait(deadline);
}

}  // namespace cohort::internal
