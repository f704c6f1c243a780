#include "cohort/trainers/outcome.h"

#include "absl/status/status.h"
#include "cohort/runtime/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(OutcomeTest, EveryCodeHasAnExitCodeAndOnlyOkIsZero) {
  EXPECT_EQ(ExitCodeOf(absl::OkStatus()), kExitOk);
  for (int code = 1; code <= 16; ++code) {
    EXPECT_NE(ExitCodeOf(absl::Status(static_cast<absl::StatusCode>(code), "text")), kExitOk) << code;
  }
  EXPECT_EQ(ExitCodeOf(absl::InvalidArgumentError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::NotFoundError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::FailedPreconditionError("")), 1);
  EXPECT_EQ(ExitCodeOf(absl::UnavailableError("")), 69);
  EXPECT_EQ(ExitCodeOf(absl::DeadlineExceededError("")), 69);
  EXPECT_EQ(ExitCodeOf(absl::InternalError("")), 70);
  EXPECT_EQ(ExitCodeOf(absl::ResourceExhaustedError("")), 74);
}

TEST(OutcomeTest, AnErrorIsWrittenOnce) {
  ::testing::internal::CaptureStderr();
  ReportError(*ProcessGroup::WorldOfOne(), absl::NotFoundError("what was not there"));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "error: what was not there\n");
}

}  // namespace
}  // namespace cohort
