#include "cohort/runtime/torch_status.h"

#include <stdexcept>
#include <string>

#include "ATen/ops/ones.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/Exception.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using absl_testing::IsOk;
using absl_testing::IsOkAndHolds;
using absl_testing::StatusIs;
using testing::HasSubstr;
using testing::Not;

void LoseConnection() { throw c10::DistNetworkError(c10::SourceLocation{"function", "file", 1}, "text"); }

TEST(InvokeTorchTest, ReturnsWhatTheFunctionReturns) {
  EXPECT_THAT(InvokeTorch(absl::InfiniteDuration(), [] {}), IsOk());
  EXPECT_THAT(InvokeTorch(absl::InfiniteDuration(), [] { return 7; }), IsOkAndHolds(7));
}

TEST(InvokeTorchTest, ReturnsWhatTheFunctionThrows) {
  EXPECT_THAT(InvokeTorch(absl::InfiniteDuration(), [] { throw std::invalid_argument("text"); }),
              StatusIs(absl::StatusCode::kInvalidArgument, "text"));
  EXPECT_THAT(InvokeTorch(absl::InfiniteDuration(), []() -> int { throw std::invalid_argument("text"); }),
              StatusIs(absl::StatusCode::kInvalidArgument, "text"));
}

TEST(InvokeTorchTest, ALostConnectionIsTheDeadlinesErrorOnceTheDeadlineHasPassed) {
  EXPECT_THAT(InvokeTorch(absl::Hours(1), LoseConnection), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(InvokeTorch(absl::ZeroDuration(), LoseConnection), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST(InvokeTorchTest, ARealErrorOfLibTorchComesWithItsMessageAndWithoutABacktrace) {
  const absl::Status status = InvokeTorch(absl::InfiniteDuration(), [] { at::ones({2}).add_(at::ones({3})); });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("must match the size")));
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr("frame #0")));
}

}  // namespace
}  // namespace cohort
