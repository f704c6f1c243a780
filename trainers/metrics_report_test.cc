#include "cohort/trainers/metrics_report.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

TEST(MetricsReportTest, NumbersHaveAllTheirDigits) {
  EXPECT_EQ(MetricsLine({{"epoch", 3}, {"loss", 0.1}, {"third", 1.0 / 3}, {"rate", 1e-300}, {"large", 1e300}}),
            "{\"epoch\":3,\"loss\":0.1,\"third\":0.3333333333333333,\"rate\":1e-300,\"large\":1e+300}");
  EXPECT_EQ(MetricsLine({}), "{}");
}

TEST(MetricsReportTest, WhatIsNotFiniteIsNullAsJsonHasNoOtherWord) {
  EXPECT_EQ(
      MetricsLine({{"a", std::numeric_limits<double>::quiet_NaN()}, {"b", std::numeric_limits<double>::infinity()}}),
      "{\"a\":null,\"b\":null}");
}

TEST(MetricsReportTest, LinesAreAddedToWhatIsThere) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/metrics.jsonl");
  std::ofstream(path) << "{\"epoch\":0}\n";
  {
    const absl::StatusOr<std::unique_ptr<MetricsReport>> report = MetricsReport::Open(path, "checkpoints");
    ABSL_ASSERT_OK(report);
    EXPECT_THAT((*report)->Append({{"epoch", 1}}), IsOk());
    EXPECT_THAT((*report)->Append({{"epoch", 2}}), IsOk());
  }
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), "{\"epoch\":0}\n{\"epoch\":1}\n{\"epoch\":2}\n");
}

TEST(MetricsReportTest, AFileThatCannotBeIsNamed) {
  EXPECT_THAT(MetricsReport::Open(absl::StrCat(::testing::TempDir(), "/missing/metrics.jsonl"), "checkpoints"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/missing/metrics.jsonl\"")));
}

TEST(MetricsReportTest, TheRunsOwnFilesAreRefusedByAnyNameOfTheDirectory) {
  const std::string dir = absl::StrCat(::testing::TempDir(), "/own");
  std::filesystem::create_directories(dir + "/run");
  std::filesystem::create_directory_symlink("run", dir + "/link");
  for (const std::string name :
       {"/run/run.json", "/link/run.json", "/run/latest", "/run/step_00000042/state.pt", "/run"}) {
    for (const std::string directory : {"/run", "/link", "/link/../run/"}) {
      EXPECT_THAT(MetricsReport::Open(dir + name, dir + directory),
                  StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a name of the run itself")))
          << name << " " << directory;
    }
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir + "/run"));
}

}  // namespace
}  // namespace cohort
