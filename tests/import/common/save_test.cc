// A multiprocess_test of a repository that imports cohort.

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/tests/harness/shared_group.h"
#include "gtest/gtest.h"

namespace {

using ::cohort::testing::SharedGroup;

TEST(SaveTest, EveryRankReadsWhatTheMainRankWrote) {
  ASSERT_EQ(std::to_string(SharedGroup().world_size()), std::getenv("WORLD_SIZE"));
  cohort::MainOnlySaver saver(&SharedGroup());
  absl::StatusOr<cohort::SaveReport> report = saver.Save(
      std::string(std::getenv("TEST_TMPDIR")) + "/save", [](cohort::WritableFile& file) { return file.Append("text"); });
  ASSERT_TRUE(report.ok()) << report.status();
  std::ifstream file(report->path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "text");
}

}  // namespace
