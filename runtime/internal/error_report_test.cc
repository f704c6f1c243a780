#include "cohort/runtime/internal/error_report.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;

// What torch's agent does with the file.
std::string TextIn(std::string_view report) {
  const nlohmann::json json = nlohmann::json::parse(report);
  return json.at("message").at("message").get<std::string>();
}

std::string TextOf(std::string_view message) {
  return TextIn(ErrorReport(absl::UnknownError(message), absl::UnixEpoch()));
}

TEST(ErrorReportTest, IsWhatTorchsAgentReads) {
  const std::string report =
      ErrorReport(absl::UnavailableError("rank 2 has died"), absl::FromUnixMillis(1700000000999));
  EXPECT_EQ(report,
            "{\"message\": {\"message\": \"UNAVAILABLE: rank 2 has died\", \"extraInfo\": {\"timestamp\": "
            "\"1700000000\"}}}\n");
  const nlohmann::json message = nlohmann::json::parse(report).at("message");
  EXPECT_EQ(std::stoll(message.at("extraInfo").at("timestamp").get<std::string>()), 1700000000);
  EXPECT_FALSE(message.at("extraInfo").contains("py_callstack")) << "the agent would show it instead of the text";
}

TEST(ErrorReportTest, TextsComeBackAsTheyWere) {
  for (const std::string_view text :
       {"", "\"quoted\" \\ back", "two\nlines", "größer → 漢字 😀", "C:\\path\\u0041", "{}[]:,"}) {
    EXPECT_EQ(TextOf(text), absl::StrCat("UNKNOWN: ", text));
  }
}

TEST(ErrorReportTest, IsAsciiWhateverTheTextIs) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  for (const std::string& text : {all, std::string("größer → 漢字 😀")}) {
    const std::string report = ErrorReport(absl::UnknownError(text), absl::UnixEpoch());
    EXPECT_TRUE(std::ranges::all_of(report, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); })) << report;
    EXPECT_TRUE(nlohmann::json::accept(report));
  }
}

TEST(ErrorReportTest, ControlCharactersReachNoTerminal) {
  EXPECT_EQ(TextOf("\x1b[31m\r\t\x7f\xc2\x9b"), "UNKNOWN: \\x1b[31m\\x0d\\x09\\x7f\\x9b");
}

TEST(ErrorReportTest, WhatIsNoUtf8IsReplacedByteByByte) {
  const std::string kBad = "\xef\xbf\xbd";  // U+FFFD
  EXPECT_EQ(TextOf("a\xff"
                   "b"),
            "UNKNOWN: a" + kBad + "b");
  EXPECT_EQ(TextOf("\xc0\xaf"), "UNKNOWN: " + kBad + kBad) << "overlong";
  EXPECT_EQ(TextOf("\xe0\x80\xaf"), "UNKNOWN: " + kBad + kBad + kBad) << "overlong";
  EXPECT_EQ(TextOf("\xed\xa0\x80"), "UNKNOWN: " + kBad + kBad + kBad) << "a surrogate";
  EXPECT_EQ(TextOf("\xf4\x90\x80\x80"), "UNKNOWN: " + kBad + kBad + kBad + kBad) << "beyond the last character";
  EXPECT_EQ(TextOf("\xf8\x88\x80\x80\x80"), "UNKNOWN: " + kBad + kBad + kBad + kBad + kBad);
  EXPECT_EQ(TextOf("\xe2\x82"), "UNKNOWN: " + kBad + kBad) << "cut off";
  EXPECT_EQ(TextOf("\x80"), "UNKNOWN: " + kBad);
}

TEST(ErrorReportTest, IsNeverLargerThanALauncherReads) {
  for (const char* unit : {"x", "\xff", "\x01", "😀", "\""}) {
    std::string text;
    while (text.size() < 1000000) text += unit;
    const std::string report = ErrorReport(absl::UnknownError(text), absl::UnixEpoch());
    EXPECT_LT(report.size(), size_t{64} << 10) << unit;
    EXPECT_THAT(TextIn(report), ::testing::EndsWith("..."));
  }
}

class CreateErrorFileTest : public ::testing::Test {
 protected:
  CreateErrorFileTest() {
    std::string pattern = ::testing::TempDir() + "/error_report_XXXXXX";
    directory_ = mkdtemp(pattern.data());
    path_ = directory_ + "/error.json";
  }

  static std::string Contents(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }

  // What lies in the directory besides the file itself.
  int NumOthers() const {
    const std::string command = absl::StrCat("exit $(ls -A '", directory_, "' | grep -vxc error.json)");
    return WEXITSTATUS(std::system(command.c_str()));
  }

  std::string directory_;
  std::string path_;
};

TEST_F(CreateErrorFileTest, WritesAFileForItsOwnerAlone) {
  const mode_t before = umask(0);
  ASSERT_THAT(CreateErrorFile(path_, "text"), IsOk());
  umask(before);
  EXPECT_EQ(Contents(path_), "text");
  struct stat status;
  ASSERT_EQ(lstat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode, mode_t{S_IFREG | 0600});
  EXPECT_EQ(NumOthers(), 0);
}

TEST_F(CreateErrorFileTest, AUmaskThatTakesEverythingTakesNothing) {
  const mode_t before = umask(0777);
  EXPECT_THAT(CreateErrorFile(path_, "text"), IsOk());
  umask(before);
  struct stat status;
  ASSERT_EQ(lstat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, mode_t{0600});
}

TEST_F(CreateErrorFileTest, NeverOverwrites) {
  std::ofstream(path_) << "somebody's";
  EXPECT_THAT(CreateErrorFile(path_, "text"), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Contents(path_), "somebody's");
  EXPECT_EQ(NumOthers(), 0);
}

TEST_F(CreateErrorFileTest, NeverFollowsALink) {
  const std::string victim = directory_ + "/victim";
  ASSERT_EQ(symlink(victim.c_str(), path_.c_str()), 0);
  EXPECT_THAT(CreateErrorFile(path_, "text"), StatusIs(absl::StatusCode::kAlreadyExists)) << "it leads nowhere yet";
  EXPECT_NE(access(victim.c_str(), F_OK), 0);
  std::ofstream(victim) << "somebody's";
  EXPECT_THAT(CreateErrorFile(path_, "text"), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Contents(victim), "somebody's");
}

// Whoever can write into the directory knows the name of the draft, too.
TEST_F(CreateErrorFileTest, NeverWritesThroughALinkInPlaceOfItsDraft) {
  const std::string victim = directory_ + "/victim";
  std::ofstream(victim) << "somebody's";
  ASSERT_EQ(symlink(victim.c_str(), absl::StrCat(path_, ".", getpid(), ".tmp").c_str()), 0);
  EXPECT_FALSE(CreateErrorFile(path_, "text").ok());
  EXPECT_EQ(Contents(victim), "somebody's");
}

TEST_F(CreateErrorFileTest, APlaceThatIsNotThereIsAnError) {
  EXPECT_THAT(CreateErrorFile(directory_ + "/no/such/error.json", "text"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_FALSE(CreateErrorFile(directory_, "text").ok()) << "a directory";
  EXPECT_FALSE(CreateErrorFile("/dev/null", "text").ok());
  EXPECT_FALSE(CreateErrorFile("/proc/error.json", "text").ok());
  EXPECT_FALSE(CreateErrorFile(directory_ + "/" + std::string(300, 'x'), "text").ok());
}

TEST_F(CreateErrorFileTest, AFileSizeLimitIsAnErrorAndEndsNoProcess) {
  const auto write_under_a_limit = [&] {
    const rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
    _exit(CreateErrorFile(path_, "text").ok() ? 1 : 7);
  };
  EXPECT_EXIT(write_under_a_limit(), ::testing::ExitedWithCode(7), "");
  EXPECT_EQ(NumOthers(), 0) << "half a file is left";
  EXPECT_NE(access(path_.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace cohort::internal
