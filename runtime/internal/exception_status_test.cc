#include "cohort/runtime/internal/exception_status.h"

#include <cerrno>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "ATen/ops/empty.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "c10/util/Exception.h"
#include "gloo/common/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/exception.h"

// AddressSanitizer ends a program that asks for too much, unless it is told to answer as malloc() does.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace cohort::internal {
namespace {

using absl_testing::StatusIs;
using testing::HasSubstr;

struct Case {
  std::string type;
  std::exception_ptr exception;
  absl::StatusCode code;
};

template <typename Exception>
std::exception_ptr FromC10() {
  return std::make_exception_ptr(Exception(c10::SourceLocation{"function", "file", 1}, "text"));
}

std::vector<Case> TransportErrors() {
  return {
      {"DistError", FromC10<c10::DistError>(), absl::StatusCode::kUnavailable},
      {"DistNetworkError", FromC10<c10::DistNetworkError>(), absl::StatusCode::kUnavailable},
      {"DistStoreError", FromC10<c10::DistStoreError>(), absl::StatusCode::kUnavailable},
      {"DistBackendError", FromC10<c10::DistBackendError>(), absl::StatusCode::kUnavailable},
      {"IoException", std::make_exception_ptr(gloo::IoException("text")), absl::StatusCode::kUnavailable},
  };
}

std::vector<Case> OtherErrors() {
  return {
      {"TimeoutError", FromC10<c10d::TimeoutError>(), absl::StatusCode::kDeadlineExceeded},
      {"IndexError", FromC10<c10::IndexError>(), absl::StatusCode::kInvalidArgument},
      {"ValueError", FromC10<c10::ValueError>(), absl::StatusCode::kInvalidArgument},
      {"TypeError", FromC10<c10::TypeError>(), absl::StatusCode::kInvalidArgument},
      {"InvalidOperationException", std::make_exception_ptr(gloo::InvalidOperationException("text")),
       absl::StatusCode::kInvalidArgument},
      {"invalid_argument", std::make_exception_ptr(std::invalid_argument("text")), absl::StatusCode::kInvalidArgument},
      {"NotImplementedError", FromC10<c10::NotImplementedError>(), absl::StatusCode::kUnimplemented},
      {"OutOfMemoryError", FromC10<c10::OutOfMemoryError>(), absl::StatusCode::kResourceExhausted},
      {"system_error", std::make_exception_ptr(std::system_error(EACCES, std::generic_category(), "text")),
       absl::StatusCode::kPermissionDenied},
      {"Error", FromC10<c10::Error>(), absl::StatusCode::kInternal},
      {"runtime_error", std::make_exception_ptr(std::runtime_error("text")), absl::StatusCode::kInternal},
  };
}

TEST(StatusFromExceptionTest, ATransportErrorWhileThereIsTimeIsUnavailable) {
  for (const Case& thrown : TransportErrors()) {
    EXPECT_THAT(StatusFromException(thrown.exception, false), StatusIs(thrown.code, HasSubstr("text"))) << thrown.type;
  }
}

TEST(StatusFromExceptionTest, ATransportErrorOnceTimeIsUpIsTheDeadlines) {
  for (const Case& thrown : TransportErrors()) {
    EXPECT_THAT(StatusFromException(thrown.exception, true),
                StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("text")))
        << thrown.type;
  }
}

TEST(StatusFromExceptionTest, OtherErrorsKeepTheirCodeWhateverTheTime) {
  for (const Case& thrown : OtherErrors()) {
    for (bool time_is_up : {false, true}) {
      EXPECT_THAT(StatusFromException(thrown.exception, time_is_up), StatusIs(thrown.code, HasSubstr("text")))
          << thrown.type;
    }
  }
}

TEST(StatusFromExceptionTest, BadAllocIsResourceExhausted) {
  EXPECT_THAT(StatusFromException(std::make_exception_ptr(std::bad_alloc()), false),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(StatusFromExceptionTest, NoMemoryForATensorIsResourceExhausted) {
  try {
    at::empty({int64_t{1} << 58}, at::kFloat);
    FAIL() << "there is an exbibyte of memory";
  } catch (...) {
    EXPECT_THAT(StatusFromException(std::current_exception(), false),
                StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("out of memory: ")));
  }
}

TEST(StatusFromExceptionTest, WhatIsNoExceptionIsUnknown) {
  EXPECT_THAT(StatusFromException(std::make_exception_ptr(7), false), StatusIs(absl::StatusCode::kUnknown));
}

}  // namespace
}  // namespace cohort::internal
