#include "cohort/checkpoint/testing/crash_file_system.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// What may stand at `path` after a loss of power.
std::set<std::string> Outcomes(const CrashFileSystem& disk, std::string_view path) {
  std::set<std::string> contents;
  disk.ForEachOutcome(
      [&](CrashFileSystem& rebooted, std::string_view) { contents.insert(rebooted.Read(path).value_or("<absent>")); });
  return contents;
}

std::unique_ptr<OutputFile> Create(CrashFileSystem& disk, std::string_view path) {
  auto file = disk.Create(path, std::nullopt);
  EXPECT_THAT(file, IsOk());
  return *std::move(file);
}

// A disk that holds `contents` at `path`, synced.
void Put(CrashFileSystem& disk, std::string_view path, std::string_view contents) {
  auto file = Create(disk, path);
  ASSERT_THAT(file->Append(contents), IsOk());
  ASSERT_THAT(file->Sync(), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
}

TEST(CrashFileSystemTest, LosesNamesThatWereNotSynced) {
  CrashFileSystem disk;
  auto file = Create(disk, "/f");
  ASSERT_THAT(file->Append("ab"), IsOk());
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_THAT(Outcomes(disk, "/f"), UnorderedElementsAre("<absent>", "ab"));
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Outcomes(disk, "/f"), ElementsAre("ab"));
}

TEST(CrashFileSystemTest, LosesWritesOneByOneAndInHalf) {
  CrashFileSystem disk;
  Put(disk, "/f", "");
  auto file = Create(disk, "/g");
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  ASSERT_THAT(file->Append("ab"), IsOk());
  ASSERT_THAT(file->Append("c"), IsOk());
  EXPECT_THAT(Outcomes(disk, "/g"),
              UnorderedElementsAre("", "a", "ab", std::string("\0\0c", 3), std::string("a\0c", 3), "abc"));
}

TEST(CrashFileSystemTest, UndoesARenameToTheOldContents) {
  CrashFileSystem disk;
  Put(disk, "/f", "old");
  Put(disk, "/t", "new");
  ASSERT_THAT(disk.Rename("/t", "/f"), IsOk());
  EXPECT_EQ(disk.Read("/f"), "new");
  EXPECT_EQ(disk.Read("/t"), std::nullopt);
  EXPECT_THAT(Outcomes(disk, "/f"), UnorderedElementsAre("old", "new"));
  EXPECT_THAT(Outcomes(disk, "/t"), UnorderedElementsAre("<absent>", "new"));
}

TEST(CrashFileSystemTest, KeepsARenameWithoutTheDataBeforeIt) {
  CrashFileSystem disk;
  auto file = Create(disk, "/t");
  ASSERT_THAT(file->Append("x"), IsOk());
  ASSERT_THAT(disk.Rename("/t", "/f"), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Outcomes(disk, "/f"), UnorderedElementsAre("", "x"));
}

TEST(CrashFileSystemTest, LosesADirectoryWithAllThatIsInIt) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  auto file = Create(disk, "/d/f");
  ASSERT_THAT(file->Sync(), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/d"), IsOk());
  EXPECT_THAT(Outcomes(disk, "/d/f"), UnorderedElementsAre("<absent>", ""));
}

TEST(CrashFileSystemTest, DoesNothingOnceThePowerIsGone) {
  CrashFileSystem disk;
  auto file = Create(disk, "/f");
  disk.LosePowerAt(2);
  EXPECT_THAT(file->Append("x"), StatusIs(absl::StatusCode::kUnavailable, "power lost"));
  EXPECT_THAT(disk.Inspect("/f"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(disk.SyncDirectory("/"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_EQ(disk.num_operations(), 1);
}

TEST(CrashFileSystemTest, FailsOneOperation) {
  CrashFileSystem disk;
  disk.FailAt(2, absl::ResourceExhaustedError("full"));
  auto file = Create(disk, "/f");
  EXPECT_THAT(file->Append("abcd"), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_EQ(disk.Read("/f"), "ab");
  EXPECT_THAT(file->Append("x"), IsOk());
  EXPECT_THAT(disk.Log(), HasSubstr("2: write 4 bytes to /f -- fails\n3: write 1 bytes to /f"));
}

TEST(CrashFileSystemTest, ForgetsWhatASyncFailedToKeep) {
  CrashFileSystem disk;
  auto file = Create(disk, "/f");
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  ASSERT_THAT(file->Append("x"), IsOk());
  disk.FailAt(4, absl::UnavailableError("I/O error"));
  EXPECT_FALSE(file->Sync().ok());
  EXPECT_THAT(file->Sync(), IsOk());
  EXPECT_THAT(Outcomes(disk, "/f"), ElementsAre(""));
}

TEST(CrashFileSystemTest, TellsAFileInUseFromAnAbandonedOne) {
  CrashFileSystem disk;
  auto file = Create(disk, "/f");
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(disk.RemoveIfAbandoned("/f"), StatusIs(absl::StatusCode::kFailedPrecondition));
  disk.ForEachOutcome(
      [](CrashFileSystem& rebooted, std::string_view) { EXPECT_THAT(rebooted.RemoveIfAbandoned("/f"), IsOk()); });
  file.reset();
  EXPECT_THAT(disk.RemoveIfAbandoned("/f"), IsOk());
  EXPECT_THAT(*disk.List("/"), IsEmpty());
}

TEST(CrashFileSystemTest, RefusesWhatAFileSystemRefuses) {
  CrashFileSystem disk;
  Put(disk, "/f", "");
  EXPECT_THAT(disk.Create("/f", std::nullopt), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(disk.Create("/no/f", std::nullopt), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(disk.MakeDirectory("/no/d"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(disk.Rename("/none", "/f"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(disk.Remove("/none"), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace cohort::testing
