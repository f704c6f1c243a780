// File: exception_status.h
//
// StatusFromException: the one table from what LibTorch and Gloo throw to absl::Status.

#ifndef COHORT_RUNTIME_INTERNAL_EXCEPTION_STATUS_H_
#define COHORT_RUNTIME_INTERNAL_EXCEPTION_STATUS_H_

#include <exception>

#include "absl/status/status.h"

namespace cohort::internal {

// Local. What `exception` (not null) means to the caller of an operation whose time is up, or not:
//
//   c10d::TimeoutError; a transport error once time is up               DeadlineExceeded
//   transport errors: gloo::IoException, c10::DistError and its kinds   Unavailable
//   c10::IndexError, ValueError, TypeError;
//   gloo::InvalidOperationException, std::invalid_argument              InvalidArgument
//   c10::NotImplementedError                                            Unimplemented
//   c10::OutOfMemoryError, std::bad_alloc; what LibTorch's allocator
//   for the CPU and Gloo say when there is no memory                    ResourceExhausted
//   std::system_error                                                   by its errno
//   other c10::Error and std::exception                                 Internal
//   anything else                                                       Unknown
//
// Whether time is up is told by the caller's clock and never by an exception's text, which changes between versions. That the
// CPU's memory has run out has no type of its own: it is told by the allocator's name in the text; where that changes, it is
// Internal.
absl::Status StatusFromException(const std::exception_ptr& exception, bool time_is_up);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_EXCEPTION_STATUS_H_
