// The conformance suite over TCP, with processes as ranks: the control plane as it is used, without a data plane.

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend_conformance.h"
#include "cohort/runtime/internal/conformance_processes.h"
#include "cohort/runtime/internal/control_only_backend.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/tcp_control_plane.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;

// Through a file, which is renamed into place so that nobody reads half of it.
absl::Status Publish(const std::string& path, std::string_view endpoint) {
  std::ofstream(path + ".new") << endpoint;
  std::filesystem::rename(path + ".new", path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> LookUp(const std::string& path, absl::Duration timeout) {
  for (SteadyTime deadline = After(SteadyNow(), timeout); !std::filesystem::exists(path);) {
    if (SteadyNow() >= deadline) return absl::DeadlineExceededError("nothing was published");
    absl::SleepFor(absl::Milliseconds(1));
  }
  std::string endpoint;
  std::getline(std::ifstream(path), endpoint);
  return endpoint;
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> MakeTcpGroup(const ConformanceCheck& check, int rank,
                                                           const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/endpoint");
  MeetingOptions options{.rank = rank,
                         .world_size = check.world_size,
                         .run_id = "test",
                         .timeout = absl::Seconds(30),
                         .meeting_point = path};
  absl::StatusOr<Meeting> meeting =
      rank == 0 ? HostMeeting(options, "127.0.0.1", [&](std::string_view endpoint) { return Publish(path, endpoint); })
                : JoinMeeting(options, [&](absl::Duration timeout) { return LookUp(path, timeout); });
  ABSL_RETURN_IF_ERROR(meeting.status());
  return std::make_unique<ProcessGroup>(
      RankInfo{.rank = rank, .world_size = check.world_size, .local_rank = rank, .local_world_size = check.world_size},
      std::make_unique<ControlOnlyBackend>("tcp", std::move(meeting->control_plane)),
      ProcessGroup::Options{.timeout = check.timeout});
}

class TcpConformanceTest : public ::testing::TestWithParam<ConformanceCheck> {};

TEST_P(TcpConformanceTest, Holds) {
  EXPECT_THAT(
      RunWithProcesses(
          GetParam(), [](int rank, const std::string& directory) { return MakeTcpGroup(GetParam(), rank, directory); }),
      IsOk());
}

INSTANTIATE_TEST_SUITE_P(, TcpConformanceTest, ::testing::ValuesIn(ConformanceChecks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::internal
