// The conformance suite on gloo and on nccl (COHORT_BACKEND), with processes as ranks that meet as those of a job do.
//
// nccl wants a GPU for each rank and a build with it; a check that lacks either is skipped, and counted as such.

#include <string>
#include <string_view>

#include "absl/status/status_matchers.h"
#include "absl/time/time.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/internal/backend_conformance.h"
#include "cohort/runtime/internal/conformance_processes.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/testing/gpus.h"
#include "cohort/runtime/testing/scripted_job.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;

// How many ranks there can be.
int MostRanks() { return std::string_view(COHORT_BACKEND) == "nccl" ? testing::NumGpus() : 1000; }

class TorchConformanceTest : public ::testing::TestWithParam<ConformanceCheck> {};

TEST_P(TorchConformanceTest, Holds) {
  const ConformanceCheck& check = GetParam();
  if (check.world_size > MostRanks()) GTEST_SKIP() << "no " << check.world_size << " GPUs in a build with nccl";
  // For its port; the ranks are forked from this process, which keeps it.
  const testing::ScriptedJob job(check.world_size);
  EXPECT_THAT(RunWithProcesses(check,
                               [&](int rank, const std::string&) {
                                 return InitProcessGroup({.backend = COHORT_BACKEND,
                                                          .init_timeout = absl::Seconds(30),
                                                          .timeout = check.timeout,
                                                          .rank_info = RankInfo{.rank = rank,
                                                                                .world_size = check.world_size,
                                                                                .local_rank = rank,
                                                                                .has_local_rank = true,
                                                                                .local_world_size = check.world_size,
                                                                                .master_addr = "127.0.0.1",
                                                                                .master_port = job.port()}});
                               }),
              IsOk());
}

INSTANTIATE_TEST_SUITE_P(, TorchConformanceTest, ::testing::ValuesIn(ConformanceChecks()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace cohort::internal
