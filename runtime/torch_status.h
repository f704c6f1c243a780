// File: torch_status.h
//
// InvokeTorch: calls LibTorch, which throws, from code that returns absl::Status.

#ifndef COHORT_RUNTIME_TORCH_STATUS_H_
#define COHORT_RUNTIME_TORCH_STATUS_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <exception>
#include <functional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/exception_status.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort {

namespace internal {

// What InvokeTorch returns for a function that returns T: a Status or a StatusOr stays what it is.
template <typename T>
struct InvokedType {
  using type = absl::StatusOr<T>;
};
template <>
struct InvokedType<void> {
  using type = absl::Status;
};
template <>
struct InvokedType<absl::Status> {
  using type = absl::Status;
};
template <typename T>
struct InvokedType<absl::StatusOr<T>> {
  using type = absl::StatusOr<T>;
};

}  // namespace internal

// Local. Calls `function()` and returns its result: a Status or a StatusOr as it is, a T as StatusOr<T>, OK for nothing.
// What it throws becomes a Status by the table in internal/exception_status.h. `timeout` is the time that `function` has to
// be done: it tells a transport that broke from one that was waited for too long.
template <typename Function>
auto InvokeTorch(absl::Duration timeout, Function&& function) {
  const internal::SteadyTime deadline = internal::After(internal::SteadyNow(), timeout);
  using Result = std::invoke_result_t<Function>;
  using Returned = typename internal::InvokedType<Result>::type;
  try {
    if constexpr (std::is_void_v<Result>) {
      std::invoke(std::forward<Function>(function));
      return absl::OkStatus();
    } else {
      return Returned(std::invoke(std::forward<Function>(function)));
    }
  } catch (...) {
    return Returned(internal::StatusFromException(std::current_exception(), internal::SteadyNow() >= deadline));
  }
}

// The same for work that waits for nobody.
template <typename Function>
auto InvokeTorch(Function&& function) {
  return InvokeTorch(absl::InfiniteDuration(), std::forward<Function>(function));
}

}  // namespace cohort

#endif  // COHORT_RUNTIME_TORCH_STATUS_H_
