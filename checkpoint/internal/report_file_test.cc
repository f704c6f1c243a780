#include "cohort/checkpoint/internal/report_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

class ReportFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(std::string_view name) const { return absl::StrCat(dir_, "/", name); }
  static void Write(const std::string& path, std::string_view text) { std::ofstream(path) << text; }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  const std::string dir_ =
      absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(ReportFileTest, AMissingFileIsMadeByTheFirstLineAndNotBefore) {
  const std::string path = Path("new.jsonl");
  ReportFile report(path, "epoch");
  EXPECT_THAT(report.Check(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_THAT(report.Append("{\"epoch\":0}\n"), IsOk());
  EXPECT_THAT(report.Append("{\"epoch\":1}\n"), IsOk());
  EXPECT_EQ(Read(path), "{\"epoch\":0}\n{\"epoch\":1}\n");
}

TEST_F(ReportFileTest, LinesAreAddedToAReportOfTheSameKindAndToAnEmptyFile) {
  const std::string report = Path("report.jsonl"), empty = Path("empty");
  Write(report, "{\"epoch\":0}\n");
  Write(empty, "");
  for (const std::string& path : {report, empty}) {
    ReportFile file(path, "epoch");
    EXPECT_THAT(file.Check(), IsOk());
    EXPECT_THAT(file.Append("{\"epoch\":1}\n"), IsOk());
  }
  EXPECT_EQ(Read(report), "{\"epoch\":0}\n{\"epoch\":1}\n");
  EXPECT_EQ(Read(empty), "{\"epoch\":1}\n");
}

TEST_F(ReportFileTest, ALineThatWasCutKeepsALineOfItsOwn) {
  const std::string path = Path("cut.jsonl");
  Write(path, "{\"epoch\":0}\n{\"epo");
  ReportFile report(path, "epoch");
  EXPECT_THAT(report.Append("{\"epoch\":1}\n"), IsOk());
  EXPECT_EQ(Read(path), "{\"epoch\":0}\n{\"epo\n{\"epoch\":1}\n");
}

TEST_F(ReportFileTest, AnyOtherFileIsRefusedAndStaysAsItIs) {
  for (const std::string text : {"a,b\n1,2\n", "PK\x03\x04", "{\"version\": 1, \"run_id\": \"a\"}\n", "{",
                                 "{\"epochs\":", "\n{\"epoch\":0}\n", "{\"time\":\"2026\"}\n"}) {
    const std::string path = Path("other");
    Write(path, text);
    ReportFile report(path, "epoch");
    EXPECT_THAT(report.Check(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is no such report"))) << text;
    EXPECT_THAT(report.Append("{\"epoch\":1}\n"), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
    EXPECT_EQ(Read(path), text);
  }
}

TEST_F(ReportFileTest, WhatCannotBeWrittenIsNamedBeforehand) {
  EXPECT_THAT(ReportFile(Path("none/r.jsonl"), "epoch").Check(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("none/r.jsonl\"")));
  EXPECT_THAT(ReportFile(dir_, "epoch").Check(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("directory")));
  Write(Path("file"), "");
  EXPECT_THAT(ReportFile(Path("file/r.jsonl"), "epoch").Check(), StatusIs(absl::StatusCode::kInvalidArgument));
  ReportFile full("/dev/full", "epoch");
  EXPECT_THAT(full.Check(), IsOk());
  EXPECT_THAT(full.Append("{\"epoch\":1}\n"), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST_F(ReportFileTest, APipeIsNotWaitedForAndDoesNotEndTheProcess) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  ReportFile report(path, "epoch");
  EXPECT_THAT(report.Check(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("a pipe that nobody reads")));

  int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  EXPECT_THAT(report.Append("{\"epoch\":0}\n"), IsOk());
  char text[64];
  EXPECT_EQ(read(reader, text, sizeof(text)), 12);
  close(reader);
  // SIGPIPE is what it was at the start of a program: it would end this one.
  ASSERT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
  EXPECT_THAT(report.Append("{\"epoch\":1}\n"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(report.Append("{\"epoch\":2}\n"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nobody reads")));

  reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_THAT(report.Append("{\"epoch\":3}\n"), IsOk());  // somebody reads again
  const std::string line(4096, 'x');
  absl::Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = report.Append(line);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("bytes of 4096 fitted")));
  close(reader);
}

TEST_F(ReportFileTest, NamesOfTheRunAreKept) {
  std::filesystem::create_directories(Path("run/step_00000001"));
  std::filesystem::create_symlink("step_00000001", Path("run/latest"));
  for (const std::string_view name : {"run", "run/run.json", "run/latest", "run/latest/state.pt", "run/.cohort-lock",
                                      "run/step_00000002", "run/x/../run.json"}) {
    EXPECT_THAT(CheckIsNotOfRun(Path("run"), "metrics_report", Path(name)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a name of the run itself")))
        << name;
  }
  for (const std::string_view name : {"runs", "run.json", "run/saves.jsonl", "run/x/run.json"}) {
    EXPECT_THAT(CheckIsNotOfRun(Path("run"), "metrics_report", Path(name)), IsOk()) << name;
  }
  // What is to be a directory must not become a file first.
  EXPECT_THAT(CheckIsNotOfRun(Path("fresh"), "metrics_report", Path("fresh")),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace cohort::internal
