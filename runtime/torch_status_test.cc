#include "cohort/runtime/torch_status.h"

#include <cerrno>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "ATen/ops/ones.h"
#include "c10/util/Exception.h"
#include "gloo/common/error.h"
#include "gtest/gtest.h"
#include "torch/csrc/distributed/c10d/exception.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using absl_testing::IsOkAndHolds;
using absl_testing::StatusIs;
using testing::HasSubstr;

struct Thrown {
  std::string type;
  std::function<void()> throw_it;
  absl::StatusCode code;
};

c10::SourceLocation Here() { return {"function", "file", 1}; }

std::vector<Thrown> TransportErrors() {
  return {
      {"DistError", [] { throw c10::DistError(Here(), "text"); }, absl::StatusCode::kUnavailable},
      {"DistNetworkError", [] { throw c10::DistNetworkError(Here(), "text"); }, absl::StatusCode::kUnavailable},
      {"DistStoreError", [] { throw c10::DistStoreError(Here(), "text"); }, absl::StatusCode::kUnavailable},
      {"DistBackendError", [] { throw c10::DistBackendError(Here(), "text"); }, absl::StatusCode::kUnavailable},
      {"IoException", [] { throw gloo::IoException("text"); }, absl::StatusCode::kUnavailable},
  };
}

std::vector<Thrown> OtherErrors() {
  return {
      {"IndexError", [] { throw c10::IndexError(Here(), "text"); }, absl::StatusCode::kInvalidArgument},
      {"ValueError", [] { throw c10::ValueError(Here(), "text"); }, absl::StatusCode::kInvalidArgument},
      {"TypeError", [] { throw c10::TypeError(Here(), "text"); }, absl::StatusCode::kInvalidArgument},
      {"InvalidOperationException", [] { throw gloo::InvalidOperationException("text"); }, absl::StatusCode::kInvalidArgument},
      {"invalid_argument", [] { throw std::invalid_argument("text"); }, absl::StatusCode::kInvalidArgument},
      {"NotImplementedError", [] { throw c10::NotImplementedError(Here(), "text"); }, absl::StatusCode::kUnimplemented},
      {"OutOfMemoryError", [] { throw c10::OutOfMemoryError(Here(), "text"); }, absl::StatusCode::kResourceExhausted},
      {"system_error", [] { throw std::system_error(EACCES, std::generic_category(), "text"); },
       absl::StatusCode::kPermissionDenied},
      {"Error", [] { throw c10::Error(Here(), "text"); }, absl::StatusCode::kInternal},
      {"runtime_error", [] { throw std::runtime_error("text"); }, absl::StatusCode::kInternal},
  };
}

TEST(InvokeTorchTest, EveryTransportErrorBeforeTheDeadlineIsUnavailable) {
  for (const Thrown& thrown : TransportErrors()) {
    EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), thrown.throw_it), StatusIs(thrown.code, HasSubstr("text"))) << thrown.type;
  }
}

TEST(InvokeTorchTest, EveryTransportErrorPastTheDeadlineIsTheDeadlines) {
  for (const Thrown& thrown : TransportErrors()) {
    EXPECT_THAT(InvokeTorch(absl::Now(), thrown.throw_it), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("text")))
        << thrown.type;
  }
}

TEST(InvokeTorchTest, OtherErrorsKeepTheirCodeWhateverTheTime) {
  for (const Thrown& thrown : OtherErrors()) {
    for (absl::Time deadline : {absl::InfinitePast(), absl::InfiniteFuture()}) {
      EXPECT_THAT(InvokeTorch(deadline, thrown.throw_it), StatusIs(thrown.code, HasSubstr("text"))) << thrown.type;
    }
  }
}

TEST(InvokeTorchTest, ATimeoutIsTheDeadlinesWhateverTheClockSays) {
  EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), [] { throw c10d::TimeoutError(Here(), "text"); }),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(InvokeTorchTest, BadAllocIsResourceExhausted) {
  EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), [] { throw std::bad_alloc(); }),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(InvokeTorchTest, WhatIsNoExceptionIsUnknown) {
  EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), [] { throw 7; }), StatusIs(absl::StatusCode::kUnknown));
}

TEST(InvokeTorchTest, ARealErrorOfLibTorchComesWithItsMessageAndWithoutABacktrace) {
  const absl::Status status = InvokeTorch(absl::InfiniteFuture(), [] { at::ones({2}).add_(at::ones({3})); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("must match the size")));
  EXPECT_THAT(status.message(), testing::Not(HasSubstr("frame #0")));
}

TEST(InvokeTorchTest, ReturnsWhatTheFunctionReturns) {
  EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), [] {}), IsOk());
  EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), [] { return 7; }), IsOkAndHolds(7));
  EXPECT_THAT(InvokeTorch(absl::InfiniteFuture(), []() -> int { throw c10::ValueError(Here(), "text"); }),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort
