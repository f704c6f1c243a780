#include "cohort/tools/launch/error_report.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ErrorReportTest : public testing::Test {
 protected:
  ErrorReportTest() : path_(absl::StrCat(testing::TempDir(), "/error.json")) { unlink(path_.c_str()); }

  std::vector<std::string> Read(std::string_view contents, int max_lines = 10) {
    std::ofstream(path_, std::ios::binary) << contents;
    return ReadErrorReport(path_, max_lines);
  }

  const std::string path_;
};

TEST_F(ErrorReportTest, ARankThatWroteNothingHasNothingToSay) {
  EXPECT_THAT(ReadErrorReport(path_, 10), IsEmpty());
  EXPECT_THAT(ReadErrorReport("/etc/passwd/none", 10), IsEmpty());
}

TEST_F(ErrorReportTest, BothFormsOfTorchAreRead) {
  EXPECT_THAT(Read(R"({"message": {"message": "RuntimeError: no", "extraInfo": {"timestamp": "1700000000"}}})"),
              ElementsAre("RuntimeError: no"));
  EXPECT_THAT(Read(R"({"message": "one\ntwo\n"})"), ElementsAre("one", "two"));
}

TEST_F(ErrorReportTest, ALongMessageIsCut) {
  EXPECT_THAT(Read(R"({"message": "1\n2\n3\n4"})", 3), ElementsAre("1", "2", "..."));
}

TEST_F(ErrorReportTest, ATerminalDoesNotObeyIt) {
  EXPECT_THAT(Read(R"({"message": "\u001b[31mred\u0007\r"})"), ElementsAre("?[31mred?"));
}

TEST_F(ErrorReportTest, WhatIsNoReportIsNotShown) {
  const std::string_view kNoReports[] = {
      "",     "{",      "[]", "null", R"({"text": "x"})", R"({"message": 7})", R"({"message": {"message": []}})",
      "\xff", "no json"};
  for (const std::string_view text : kNoReports) {
    EXPECT_THAT(Read(text), ElementsAre("(what it wrote into its error file is no report of an error)")) << text;
  }
}

TEST_F(ErrorReportTest, AnEmptyMessageIsSaidToBeNone) {
  EXPECT_THAT(Read(R"({"message": " \n"})"), ElementsAre("(its error file has no message)"));
}

TEST_F(ErrorReportTest, DeepNestingDoesNoHarm) {
  EXPECT_THAT(Read(absl::StrCat(R"({"message": )", std::string(30000, '['), std::string(30000, ']'), "}")),
              ElementsAre("(what it wrote into its error file is no report of an error)"));
}

TEST_F(ErrorReportTest, NoMoreIsReadThanAReportMayHave) {
  EXPECT_THAT(Read(absl::StrCat(R"({"message": ")", std::string(100000, 'x'), "\"}")),
              ElementsAre("(its error file has more than 65536 bytes)"));
}

TEST_F(ErrorReportTest, LinksAndPipesAreNotReadAndNotWaitedFor) {
  ASSERT_EQ(symlink("/etc/passwd", path_.c_str()), 0);
  EXPECT_THAT(ReadErrorReport(path_, 10), ElementsAre(HasSubstr("cannot be read")));
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(ReadErrorReport(path_, 10), ElementsAre(HasSubstr("cannot be read")));
  unlink(path_.c_str());
}

}  // namespace
}  // namespace cohort::launch
