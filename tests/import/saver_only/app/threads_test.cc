// Two ranks save in one process: what an importer's own test of its saves looks like.

#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::Each;

TEST(ThreadsTest, TwoRanksSave) {
  cohort::testing::ThreadGroup threads(2);
  EXPECT_THAT(threads.Run([](cohort::ProcessGroup& group) -> absl::Status {
                cohort::MainOnlySaver saver(&group);
                ABSL_ASSIGN_OR_RETURN(const cohort::SaveReport report,
                                      saver.Save(::testing::TempDir() + "/save", [](cohort::WritableFile& file) {
                                        return file.Append("text");
                                      }));
                std::ifstream file(report.path);
                const std::string text{std::istreambuf_iterator<char>(file), {}};
                return text == "text" ? absl::OkStatus() : absl::DataLossError(text);
              }),
              Each(IsOk()));
}

TEST(ThreadsTest, ARankThatDiesIsAnErrorOnTheOther) {
  cohort::testing::ThreadGroup threads(2);
  threads.KillAfter(/*rank=*/1, /*num_collectives=*/0);
  const std::vector<absl::Status> outcomes =
      threads.Run([](cohort::ProcessGroup& group) { return group.Barrier(); });
  EXPECT_THAT(outcomes[0], StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
