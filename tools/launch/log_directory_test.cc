#include "cohort/tools/launch/log_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOk;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string NewDirectory() {
  std::string path = absl::StrCat(testing::TempDir(), "/log_XXXXXX");
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

mode_t ModeOf(const std::string& path) {
  struct stat status;
  return lstat(path.c_str(), &status) == 0 ? status.st_mode & 07777 : 0;
}

TEST(LogDirectoryTest, IsLaidOutAsTorchrunDoes) {
  const std::string base = absl::StrCat(NewDirectory(), "/a/b");
  absl::StatusOr<LogDirectory> logs = LogDirectory::Create(base, "job-7");
  ASSERT_THAT(logs, IsOk());
  EXPECT_THAT(logs->path(), MatchesRegex(absl::StrCat(base, "/job-7_......")));
  ASSERT_THAT(logs->AddAttempt(3, 2), IsOk());
  for (const std::string_view name : {kStdoutLog, kStderrLog}) {
    const absl::StatusOr<UniqueFd> file = logs->MakeFile(3, 1, name);
    ASSERT_THAT(file, IsOk());
    EXPECT_TRUE(std::filesystem::is_regular_file(absl::StrCat(logs->path(), "/attempt_3/1/", name)));
  }
  EXPECT_EQ(logs->FilePath(3, 1, kErrorFile), absl::StrCat(logs->path(), "/attempt_3/1/error.json"));
  EXPECT_TRUE(std::filesystem::is_directory(absl::StrCat(logs->path(), "/attempt_3/0")));
}

TEST(LogDirectoryTest, IsNewEachTimeAndForTheUserAlone) {
  const std::string base = NewDirectory();
  const mode_t before = umask(0);
  const absl::StatusOr<LogDirectory> first = LogDirectory::Create(base, "job");
  const absl::StatusOr<LogDirectory> second = LogDirectory::Create(base, "job");
  umask(before);
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(second, IsOk());
  EXPECT_NE(first->path(), second->path());
  EXPECT_EQ(ModeOf(first->path()), 0700);
}

TEST(LogDirectoryTest, APathThatIsRelativeBecomesAbsolute) {
  ASSERT_EQ(chdir(NewDirectory().c_str()), 0);
  const std::string here = std::filesystem::current_path();
  const absl::StatusOr<LogDirectory> logs = LogDirectory::Create("logs", "job");
  ASSERT_THAT(logs, IsOk());
  EXPECT_THAT(logs->path(), MatchesRegex(absl::StrCat(here, "/logs/job_......")));
}

TEST(LogDirectoryTest, ALongNameOfTheRunIsCut) {
  EXPECT_THAT(LogDirectory::Create(NewDirectory(), std::string(400, 'x')), IsOk());
}

TEST(LogDirectoryTest, AttemptsAreKeptApart) {
  absl::StatusOr<LogDirectory> logs = LogDirectory::Create(NewDirectory(), "job");
  ASSERT_THAT(logs, IsOk());
  for (const int attempt : {0, 1}) {
    ASSERT_THAT(logs->AddAttempt(attempt, 1), IsOk());
    EXPECT_THAT(logs->MakeFile(attempt, 0, kStdoutLog), IsOk());
  }
}

TEST(LogDirectoryTest, NoSymlinkIsFollowedAndNoFileReplaced) {
  absl::StatusOr<LogDirectory> logs = LogDirectory::Create(NewDirectory(), "job");
  ASSERT_THAT(logs, IsOk());
  ASSERT_THAT(logs->AddAttempt(0, 1), IsOk());
  const std::string victim = absl::StrCat(NewDirectory(), "/victim");
  std::filesystem::create_symlink(victim, absl::StrCat(logs->path(), "/attempt_0/0/", kStdoutLog));
  const absl::StatusOr<UniqueFd> file = logs->MakeFile(0, 0, kStdoutLog);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(std::filesystem::exists(victim));
}

TEST(LogDirectoryTest, WhatWasMovedIntoItsPlaceIsNotWrittenTo) {
  const std::string base = NewDirectory();
  absl::StatusOr<LogDirectory> logs = LogDirectory::Create(base, "job");
  ASSERT_THAT(logs, IsOk());
  const std::string other = NewDirectory();
  std::filesystem::rename(logs->path(), absl::StrCat(base, "/moved"));
  std::filesystem::create_symlink(other, logs->path());
  ASSERT_THAT(logs->AddAttempt(0, 1), IsOk());
  EXPECT_TRUE(std::filesystem::is_empty(other));
  EXPECT_TRUE(std::filesystem::exists(absl::StrCat(base, "/moved/attempt_0/0")));
}

TEST(LogDirectoryTest, ABaseThatCannotBeIsNamed) {
  const std::string file = absl::StrCat(NewDirectory(), "/file");
  ASSERT_TRUE(UniqueFd(open(file.c_str(), O_CREAT | O_WRONLY, 0600)));
  for (const std::string& base : {file, absl::StrCat(file, "/below")}) {
    const absl::StatusOr<LogDirectory> logs = LogDirectory::Create(base, "job");
    ASSERT_FALSE(logs.ok());
    EXPECT_THAT(std::string(logs.status().message()), HasSubstr(absl::StrCat("cannot make ", base)));
    EXPECT_THAT(std::string(logs.status().message()), HasSubstr("Not a directory"));
  }
  EXPECT_FALSE(LogDirectory::Create("/proc/no-such-place", "job").ok());
}

TEST(LogDirectoryTest, ATemporaryOneGoesWithAllThatIsInIt) {
  const std::string base = NewDirectory();
  std::string path;
  {
    absl::StatusOr<LogDirectory> made = LogDirectory::CreateTemporary(base);
    ASSERT_THAT(made, IsOk());
    std::optional<LogDirectory> logs = *std::move(made);
    path = logs->path();
    ASSERT_THAT(logs->AddAttempt(0, 2), IsOk());
    ASSERT_THAT(logs->MakeFile(0, 1, kStderrLog), IsOk());
    EXPECT_TRUE(std::filesystem::exists(path));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_TRUE(std::filesystem::is_empty(base));
  EXPECT_FALSE(LogDirectory::CreateTemporary(absl::StrCat(base, "/not-there")).ok());
}

}  // namespace
}  // namespace cohort::launch
