#include "cohort/runtime/internal/conformance_processes.h"

#include <signal.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend_conformance.h"
#include "cohort/runtime/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The ranks need no group here: each has one of its own, and is told apart by its process.
absl::Status Report(const std::vector<int>& casualties,
                    std::function<absl::Status(ConformanceRank& self, int rank)> run,
                    absl::Duration patience = kConformancePatience) {
  int rank = -1;
  ConformanceCheck check{.name = "check",
                         .world_size = 3,
                         .timeout = absl::Seconds(60),
                         .casualties = casualties,
                         .run = [&](ConformanceRank& self) { return run(self, rank); }};
  return RunWithProcesses(
      check,
      [&](int this_rank, const std::string&) -> absl::StatusOr<std::unique_ptr<ProcessGroup>> {
        rank = this_rank;
        return ProcessGroup::WorldOfOne();
      },
      patience);
}

TEST(ConformanceProcessesTest, RanksShareTheirEvidenceAndNothingElse) {
  EXPECT_THAT(Report({},
                     [](ConformanceRank& self, int) {
                       self.evidence.Note(absl::StrCat("pid-", getpid()));
                       self.evidence.Note("here");
                       absl::Status all = self.evidence.Await("here", 3);
                       return self.evidence.Count(absl::StrCat("pid-", getpid())) == 1
                                  ? all
                                  : absl::InternalError("shared a process");
                     }),
              IsOk());
}

TEST(ConformanceProcessesTest, ACasualtyMayDieOrFreeze) {
  EXPECT_THAT(Report({0, 2},
                     [](ConformanceRank& self, int rank) {
                       if (rank == 0) self.die();
                       if (rank == 2) self.freeze();
                       return rank == 1 ? absl::OkStatus() : absl::InternalError("is not reached");
                     }),
              IsOk());
}

TEST(ConformanceProcessesTest, WhatARankFindsIsReported) {
  EXPECT_THAT(
      Report({}, [](ConformanceRank&, int rank) { return rank == 1 ? absl::DataLossError("oh") : absl::OkStatus(); }),
      StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("rank 1: DATA_LOSS: oh"), Not(HasSubstr("rank 0")))));
}

TEST(ConformanceProcessesTest, ARankThatDiesUnexpectedlyIsReported) {
  EXPECT_THAT(Report({},
                     [](ConformanceRank& self, int rank) {
                       if (rank == 1) self.die();
                       return absl::OkStatus();
                     }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr(absl::StrCat("rank 1: signal ", SIGKILL))));
}

TEST(ConformanceProcessesTest, ACasualtyThatDoesNotDieIsReported) {
  EXPECT_THAT(Report({1},
                     [](ConformanceRank& self, int rank) {
                       self.evidence.Note("here");
                       return rank == 1 ? absl::OkStatus() : self.evidence.Await("outcome", 1);
                     }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1 was to die or freeze, and did not")));
}

TEST(ConformanceProcessesTest, ARankThatHangsIsEndedAndReported) {
  EXPECT_THAT(Report(
                  {},
                  [](ConformanceRank&, int rank) {
                    while (rank == 1) pause();
                    return absl::OkStatus();
                  },
                  absl::Seconds(2)),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1 hung")));
}

TEST(ConformanceProcessesTest, AGroupThatCannotBeMadeIsReported) {
  ConformanceCheck check{.name = "check", .world_size = 2, .timeout = absl::Seconds(60)};
  EXPECT_THAT(RunWithProcesses(check,
                               [](int, const std::string&) -> absl::StatusOr<std::unique_ptr<ProcessGroup>> {
                                 return absl::UnavailableError("no network");
                               }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("rank 1: UNAVAILABLE: no network")));
}

}  // namespace
}  // namespace cohort::internal
