// Which GPU the ranks of a job use with nccl, and what becomes of ranks that would have to share one. Each test needs as
// many GPUs as it says, in a build with NCCL, and is skipped, and counted as such, without.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cohort/runtime/testing/gpus.h"
#include "cohort/runtime/testing/scripted_job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::cohort::testing::NumGpus;
using ::cohort::testing::ScriptedJob;
using ::cohort::testing::ScriptedRank;
using ::cohort::testing::StepReport;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Environment = ScriptedRank::Environment;

// Two ranks that do the same, to their ends; the reports of each.
std::vector<std::vector<StepReport>> RunTwo(const std::vector<std::string>& steps, const Environment& changes = {}) {
  ScriptedJob job(2);
  std::vector<ScriptedRank> ranks;
  for (int rank = 0; rank < 2; ++rank) ranks.push_back(job.Start(rank, steps, changes));
  std::vector<std::vector<StepReport>> reports;
  for (ScriptedRank& rank : ranks) {
    reports.push_back(rank.AwaitEnd());
    EXPECT_EQ(rank.exit_code(), 0);
    // LibTorch says so when a barrier has to take whatever device there is.
    EXPECT_THAT(rank.Errors(), AllOf(Not(HasSubstr("unknown")), Not(HasSubstr("guess"))));
  }
  return reports;
}

class SharedGpuTest : public ::testing::TestWithParam<Environment> {
 protected:
  void SetUp() override {
    if (NumGpus() < 1) GTEST_SKIP() << "no GPU in a build with nccl";
  }
};

// One visible device, and one local rank for all.
INSTANTIATE_TEST_SUITE_P(, SharedGpuTest,
                         ::testing::Values(Environment{{"CUDA_VISIBLE_DEVICES", "0"}},
                                           Environment{{"LOCAL_RANK", "0"}}),
                         [](const auto& info) { return info.param.begin()->first; });

TEST_P(SharedGpuTest, IsAnErrorOfBothRanksThatNamesThemAndTheDeviceBeforeItIsTouched) {
  const auto reports = RunTwo({"init=nccl", "contexts"}, GetParam());
  for (const std::vector<StepReport>& of_rank : reports) {
    ASSERT_EQ(of_rank.size(), 2u);
    EXPECT_EQ(of_rank[0].code, "FAILED_PRECONDITION");
    EXPECT_THAT(of_rank[0].text, HasSubstr("rank 0 and rank 1 cannot both use nccl on one device, GPU-"));
    EXPECT_EQ(of_rank[0].text, reports[0][0].text);
    EXPECT_EQ(of_rank[1].code, "OK");
    EXPECT_EQ(of_rank[1].text, "");
  }
}

TEST_P(SharedGpuTest, IsNoMatterForGloo) {
  for (const std::vector<StepReport>& of_rank :
       RunTwo({"init=gloo", "barrier", "sum=3", "contexts", "shutdown"}, GetParam())) {
    ASSERT_EQ(of_rank.size(), 5u);
    for (const StepReport& report : of_rank) EXPECT_EQ(report.code, "OK") << report.step << ": " << report.text;
    EXPECT_EQ(of_rank[3].text, "");
  }
}

TEST(OwnGpuTest, ARankUsesItsOwnDeviceAloneAndLeavesTheCurrentOneAsItIs) {
  if (NumGpus() < 2) GTEST_SKIP() << "no 2 GPUs in a build with nccl";
  const auto reports = RunTwo({"init=nccl", "contexts", "current_device", "barrier", "agree=saved", "contexts",
                               "current_device", "set_device=1", "barrier", "current_device", "contexts", "shutdown"});
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    const std::vector<StepReport>& of_rank = reports[rank];
    ASSERT_EQ(of_rank.size(), 12u);
    for (const StepReport& report : of_rank) EXPECT_EQ(report.code, "OK") << report.step << ": " << report.text;
    EXPECT_EQ(of_rank[1].text, absl::StrCat(rank));
    EXPECT_EQ(of_rank[2].text, "0");
    EXPECT_EQ(of_rank[5].text, absl::StrCat(rank));
    EXPECT_EQ(of_rank[6].text, "0");
    EXPECT_EQ(of_rank[9].text, "1");
    // What the user touches is seen: the detector detects.
    EXPECT_EQ(of_rank[10].text, rank == 0 ? "0 1" : "1");
  }
}

}  // namespace
}  // namespace cohort
