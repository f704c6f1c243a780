#include "cohort/runtime/main_only.h"

#include <errno.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "absl/base/log_severity.h"
#include "absl/log/scoped_mock_log.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::_;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Seconds(60);

testing::ThreadGroup::Options FourRanksOnTwoNodes() {
  return {.world_size = 4, .ranks_per_node = 2, .group = {.timeout = kLong}};
}

TEST(RunOnMainTest, RunsOnTheMainRankAloneAndBeforeAnyRankReturns) {
  std::vector<int> calls(4);
  std::vector<absl::Status> outcomes = testing::ThreadGroup(FourRanksOnTwoNodes()).Run([&](ProcessGroup& group) {
    absl::Status status = RunOnMain(group, "work", kLong, [&] {
      ++calls[group.rank()];
      return absl::OkStatus();
    });
    EXPECT_EQ(calls[0], 1);
    return status;
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(calls, ElementsAre(1, 0, 0, 0));
}

TEST(RunOnMainTest, EveryRankReturnsTheMainRanksError) {
  std::vector<absl::Status> outcomes = testing::ThreadGroup(FourRanksOnTwoNodes()).Run([](ProcessGroup& group) {
    return RunOnMain(group, "work", kLong, [] { return absl::ResourceExhaustedError("disk full"); });
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kResourceExhausted, "rank 0: disk full")));
}

TEST(RunOnMainTest, EveryRankReturnsWhatTheMainRankThrewAndGoesOn) {
  std::vector<absl::Status> outcomes = testing::ThreadGroup(FourRanksOnTwoNodes()).Run([](ProcessGroup& group) {
    absl::Status status = RunOnMain(group, "work", kLong, []() -> absl::Status { throw std::runtime_error("oh"); });
    EXPECT_THAT(group.Barrier(), IsOk());
    return status;
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kInternal, "rank 0: exception: oh")));
}

TEST(RunOnMainTest, WorksInAWorldOfOne) {
  std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  EXPECT_THAT(RunOnMain(*group, "work", kLong, [] { return absl::OkStatus(); }), IsOk());
  EXPECT_THAT(RunOnMain(*group, "work", kLong, [] { return absl::DataLossError("oh"); }),
              StatusIs(absl::StatusCode::kDataLoss, "rank 0: oh"));
}

TEST(RunOnMainTest, TheTimeoutOfTheCallCounts) {
  testing::ThreadGroup threads({.world_size = 2, .group = {.timeout = kLong}});
  threads.FreezeAfter(0, 0);
  std::vector<absl::Status> outcomes = threads.Run([](ProcessGroup& group) {
    return RunOnMain(group, "work", absl::Milliseconds(100), [] { return absl::OkStatus(); });
  });
  EXPECT_THAT(outcomes[1], StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("rank 0")));
}

TEST(RunOnLocalMainTest, RunsOncePerNodeAndEveryRankOfTheJobWaits) {
  std::vector<int> calls(4);
  std::vector<absl::Status> outcomes = testing::ThreadGroup(FourRanksOnTwoNodes()).Run([&](ProcessGroup& group) {
    absl::Status status = RunOnLocalMain(group, "work", kLong, [&] {
      ++calls[group.rank()];
      return absl::OkStatus();
    });
    EXPECT_EQ(calls[0] + calls[2], 2);
    return status;
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(calls, ElementsAre(1, 0, 1, 0));
}

TEST(RunOnLocalMainTest, AnErrorOnOneNodeIsTheErrorOfAll) {
  std::vector<absl::Status> outcomes = testing::ThreadGroup(FourRanksOnTwoNodes()).Run([](ProcessGroup& group) {
    return RunOnLocalMain(group, "work", kLong,
                          [&] { return group.rank() == 2 ? absl::NotFoundError("no disk") : absl::OkStatus(); });
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kNotFound, "rank 2: no disk")));
}

// The status that a function which calls `fail` turns into.
absl::Status StatusOf(const std::function<void()>& fail) {
  return InvokeUser([&] {
    fail();
    return absl::OkStatus();
  });
}

TEST(InvokeUserTest, PassesOnWhatTheFunctionReturns) {
  EXPECT_THAT(InvokeUser([] { return absl::OkStatus(); }), IsOk());
  EXPECT_THAT(InvokeUser([] { return absl::AbortedError("as it is"); }),
              StatusIs(absl::StatusCode::kAborted, "as it is"));
}

TEST(InvokeUserTest, EveryExceptionBecomesAStatus) {
  EXPECT_THAT(StatusOf([] { throw std::bad_alloc(); }), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(StatusOf([] { throw std::invalid_argument("bad"); }),
              StatusIs(absl::StatusCode::kInvalidArgument, "exception: bad"));
  EXPECT_THAT(StatusOf([] { (void)std::vector<int>().at(1); }), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(StatusOf([] { throw std::logic_error("bug"); }), StatusIs(absl::StatusCode::kInternal, "exception: bug"));
  EXPECT_THAT(StatusOf([] { throw 42; }), StatusIs(absl::StatusCode::kUnknown));
}

TEST(InvokeUserTest, SystemErrorsGoByErrno) {
  EXPECT_THAT(StatusOf([] { throw std::system_error(ENOSPC, std::generic_category(), "write"); }),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("write: No space left on device")));
  EXPECT_THAT(StatusOf([] { throw std::system_error(EACCES, std::system_category(), "open"); }),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(StatusOf([] { (void)std::filesystem::file_size("/no/such/file"); }),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(InvokeUserTest, ASystemErrorOfAnotherCategoryIsNoErrno) {
  EXPECT_THAT(StatusOf([] {
                std::ifstream file;
                file.exceptions(std::ios::failbit);
                file.open("/no/such/file");
              }),
              StatusIs(absl::StatusCode::kInternal));
}

TEST(LogTest, OnlyTheMainRankLogsAndOnlyItEvaluates) {
  absl::ScopedMockLog log(absl::MockLogDefault::kDisallowUnexpected);
  EXPECT_CALL(log, Log(absl::LogSeverity::kInfo, _, "epoch 3")).Times(1);
  std::vector<int> evaluated(2);
  log.StartCapturingLogs();
  std::vector<absl::Status> outcomes = testing::RunRanks(2, [&](ProcessGroup& group) {
    COHORT_LOG_MAIN(group, INFO) << "epoch " << (++evaluated[group.rank()], 3);
    return absl::OkStatus();
  });
  log.StopCapturingLogs();
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(evaluated, ElementsAre(1, 0));
}

TEST(LogTest, WhenEveryRankLogsEveryLineSaysWhichItWas) {
  absl::ScopedMockLog log(absl::MockLogDefault::kDisallowUnexpected);
  EXPECT_CALL(log, Log(absl::LogSeverity::kWarning, _, "[rank 0] hot")).Times(1);
  EXPECT_CALL(log, Log(absl::LogSeverity::kWarning, _, "[rank 1] hot")).Times(1);
  log.StartCapturingLogs();
  std::vector<absl::Status> outcomes = testing::RunRanks(2, [&](ProcessGroup& group) {
    COHORT_LOG_RANK(group, WARNING) << "hot";
    return absl::OkStatus();
  });
  log.StopCapturingLogs();
  EXPECT_THAT(outcomes, Each(IsOk()));
}

}  // namespace
}  // namespace cohort
