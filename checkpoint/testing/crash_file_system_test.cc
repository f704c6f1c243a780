#include "cohort/checkpoint/testing/crash_file_system.h"

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "cohort/checkpoint/file_system.h"
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

TEST(CrashFileSystemTest, FailsUntilItIsRepaired) {
  CrashFileSystem disk;
  disk.FailFrom(2, absl::UnavailableError("I/O error"));
  EXPECT_THAT(disk.MakeDirectory("/a"), IsOk());
  EXPECT_THAT(disk.MakeDirectory("/b"), StatusIs(absl::StatusCode::kUnavailable, "I/O error"));
  EXPECT_THAT(disk.MakeDirectory("/b"), StatusIs(absl::StatusCode::kUnavailable, "I/O error"));
  disk.Repair();
  EXPECT_THAT(disk.MakeDirectory("/b"), IsOk());
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

// What `path` may say after a loss of power.
std::set<std::string> LinkOutcomes(const CrashFileSystem& disk, std::string_view path) {
  std::set<std::string> targets;
  disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view) {
    targets.insert(rebooted.ReadLink(path).value_or("<absent>"));
  });
  return targets;
}

TEST(CrashFileSystemTest, LosesASymlinkWithItsNameAndNeverWhatItSays) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeSymlink("old", "/latest"), IsOk());
  EXPECT_THAT(LinkOutcomes(disk, "/latest"), UnorderedElementsAre("<absent>", "old"));
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  ASSERT_THAT(disk.MakeSymlink("new", "/next"), IsOk());
  ASSERT_THAT(disk.Rename("/next", "/latest"), IsOk());
  EXPECT_EQ(*disk.ReadLink("/latest"), "new");
  EXPECT_THAT(LinkOutcomes(disk, "/latest"), UnorderedElementsAre("old", "new"));
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(LinkOutcomes(disk, "/latest"), ElementsAre("new"));
}

TEST(CrashFileSystemTest, FollowsSymlinksButForTheLastNameOfWhatIsChanged) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  ASSERT_THAT(disk.MakeDirectory("/d/e"), IsOk());
  ASSERT_THAT(disk.MakeSymlink("e", "/d/relative"), IsOk());
  ASSERT_THAT(disk.MakeSymlink("/d/relative/../relative", "/absolute"), IsOk());
  {
    auto file = Create(disk, "/absolute/f");
    ASSERT_THAT(file->Append("x"), IsOk());
  }
  ASSERT_THAT(disk.MakeSymlink("f", "/d/e/link"), IsOk());
  EXPECT_EQ(disk.Read("/d/./e/f"), "x");
  EXPECT_EQ(disk.Read("/absolute/link"), "x");
  EXPECT_EQ(*disk.ReadSmallFile("/absolute/link", 1), "x");
  EXPECT_THAT(*disk.List("/absolute"), ElementsAre("f", "link"));
  EXPECT_THAT(disk.SyncDirectory("/absolute"), IsOk());

  EXPECT_EQ(disk.Inspect("/absolute")->type, FileType::kSymlink);
  EXPECT_EQ(disk.Inspect("/absolute/f")->type, FileType::kRegular);
  EXPECT_EQ(disk.Inspect("/absolute/f")->num_bytes, 1);
  EXPECT_THAT(disk.Create("/absolute", std::nullopt), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(disk.MakeDirectory("/absolute"), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(disk.RemoveIfAbandoned("/absolute/link"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(disk.Rename("/absolute/link", "/absolute/renamed"), IsOk());
  EXPECT_EQ(*disk.ReadLink("/d/e/renamed"), "f");
  EXPECT_THAT(disk.Remove("/absolute"), IsOk());
  EXPECT_EQ(disk.Read("/d/e/f"), "x");
}

TEST(CrashFileSystemTest, RefusesLoopsAndWhatLeadsNowhere) {
  CrashFileSystem disk;
  Put(disk, "/f", "");
  ASSERT_THAT(disk.MakeSymlink("b", "/a"), IsOk());
  ASSERT_THAT(disk.MakeSymlink("a", "/b"), IsOk());
  ASSERT_THAT(disk.MakeSymlink("none", "/dangling"), IsOk());
  EXPECT_THAT(disk.ReadSmallFile("/a", 9), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Too many levels")));
  EXPECT_THAT(disk.List("/a/b"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(disk.ReadSmallFile("/dangling", 9), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(disk.Inspect("/f/g"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Not a directory")));
  EXPECT_EQ(disk.Inspect("/a")->type, FileType::kSymlink);
}

TEST(CrashFileSystemTest, RenamesADirectoryWithAllThatIsInIt) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  {
    auto file = Create(disk, "/d/f");
    ASSERT_THAT(file->Append("x"), IsOk());
    ASSERT_THAT(file->Sync(), IsOk());
  }
  ASSERT_THAT(disk.SyncDirectory("/d"), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  ASSERT_THAT(disk.Rename("/d", "/e"), IsOk());
  EXPECT_EQ(disk.Read("/e/f"), "x");
  EXPECT_THAT(Outcomes(disk, "/e/f"), UnorderedElementsAre("<absent>", "x"));
  EXPECT_THAT(Outcomes(disk, "/d/f"), UnorderedElementsAre("<absent>", "x"));
}

TEST(CrashFileSystemTest, RenamesADirectoryBeforeWhatIsInItIsKept) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  {
    auto file = Create(disk, "/d/f");
    ASSERT_THAT(file->Sync(), IsOk());
  }
  ASSERT_THAT(disk.Rename("/d", "/e"), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(Outcomes(disk, "/e/f"), UnorderedElementsAre("<absent>", ""));
}

TEST(CrashFileSystemTest, RenamesOverWhatPosixAllows) {
  CrashFileSystem disk;
  Put(disk, "/f", "f");
  ASSERT_THAT(disk.MakeDirectory("/empty"), IsOk());
  ASSERT_THAT(disk.MakeDirectory("/full"), IsOk());
  ASSERT_THAT(disk.MakeDirectory("/full/d"), IsOk());
  ASSERT_THAT(disk.MakeSymlink("f", "/link"), IsOk());
  EXPECT_THAT(disk.Rename("/link", "/empty"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Is a dir")));
  EXPECT_THAT(disk.Rename("/f", "/empty"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(disk.Rename("/empty", "/f"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Not a dir")));
  EXPECT_THAT(disk.Rename("/empty", "/link"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(disk.Rename("/empty", "/full"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not empty")));
  EXPECT_THAT(disk.Rename("/f", "/f"), IsOk());
  EXPECT_EQ(disk.Read("/f"), "f");
  EXPECT_THAT(disk.Rename("/full", "/empty"), IsOk());
  EXPECT_THAT(disk.Rename("/link", "/f"), IsOk());
  EXPECT_THAT(*disk.List("/"), UnorderedElementsAre("empty", "f"));
  EXPECT_THAT(*disk.List("/empty"), ElementsAre("d"));
}

TEST(CrashFileSystemTest, RemovesOnlyAnEmptyDirectoryAndMayBringItBack) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  { auto file = Create(disk, "/d/f"); }
  ASSERT_THAT(disk.SyncDirectory("/d"), IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(disk.Remove("/d"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(disk.RemoveDirectory("/d"), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(disk.RemoveDirectory("/d/f"), StatusIs(absl::StatusCode::kInvalidArgument));
  ASSERT_THAT(disk.Remove("/d/f"), IsOk());
  ASSERT_THAT(disk.RemoveDirectory("/d"), IsOk());
  EXPECT_THAT(disk.RemoveDirectory("/d"), StatusIs(absl::StatusCode::kNotFound));
  std::set<std::string> found;
  disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view) {
    found.insert(!rebooted.Inspect("/d").ok() ? "gone" : rebooted.Read("/d/f").has_value() ? "as it was" : "empty");
  });
  EXPECT_THAT(found, UnorderedElementsAre("gone", "as it was", "empty"));
}

TEST(CrashFileSystemTest, TriesNoOutcomesOfWhatNobodyCanSeeAnyMore) {
  CrashFileSystem disk;
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
    { auto file = Create(disk, "/d/f"); }
    ASSERT_THAT(disk.Remove("/d/f"), IsOk());
    ASSERT_THAT(disk.RemoveDirectory("/d"), IsOk());
    ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  }
  int num_outcomes = 0;
  disk.ForEachOutcome([&](CrashFileSystem&, std::string_view) { ++num_outcomes; });
  EXPECT_EQ(num_outcomes, 1);
}

TEST(CrashFileSystemTest, TriesNoOutcomeThatLooksLikeAnother) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  auto file = Create(disk, "/d/f");
  ASSERT_THAT(file->Append("ab"), IsOk());
  std::multiset<std::string> found;
  disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view) {
    found.insert(!rebooted.Inspect("/d").ok() ? "nothing" : rebooted.Read("/d/f").value_or("no file"));
  });
  EXPECT_THAT(found, UnorderedElementsAre("nothing", "no file", "", "a", "ab"));
}

TEST(CrashFileSystemTest, ReadsSmallFilesOnly) {
  CrashFileSystem disk;
  Put(disk, "/f", "12345");
  EXPECT_EQ(*disk.ReadSmallFile("/f", 5), "12345");
  EXPECT_THAT(disk.ReadSmallFile("/f", 4), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(disk.ReadSmallFile("/", 4), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(disk.ReadSmallFile("/none", 4), StatusIs(absl::StatusCode::kNotFound));
}

TEST(CrashFileSystemTest, LocksUntilTheLockOrThePowerGoes) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeSymlink("f", "/link"), IsOk());
  auto lock = disk.Lock("/lock", "us");
  ASSERT_THAT(lock, IsOk());
  ASSERT_THAT(disk.SyncDirectory("/"), IsOk());
  EXPECT_THAT(disk.Lock("/lock", "them"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("\"us\"")));
  EXPECT_THAT(disk.Lock("/link", "us"), StatusIs(absl::StatusCode::kInvalidArgument));
  disk.ForEachOutcome([](CrashFileSystem& rebooted, std::string_view) {
    EXPECT_EQ(rebooted.Read("/lock"), "us");
    EXPECT_THAT(rebooted.Lock("/lock", "them"), IsOk());
  });
  lock->reset();
  EXPECT_THAT(disk.Lock("/lock", "them"), IsOk());
  EXPECT_EQ(disk.Read("/lock"), "them");
}

TEST(CrashFileSystemTest, CountsWhatChangesTheDiskAndNothingElse) {
  CrashFileSystem disk;
  ASSERT_THAT(disk.MakeSymlink("f", "/link"), IsOk());
  ASSERT_THAT(disk.MakeDirectory("/d"), IsOk());
  ASSERT_THAT(disk.RemoveDirectory("/d"), IsOk());
  ASSERT_THAT(disk.Lock("/lock", "us"), IsOk());
  EXPECT_EQ(disk.num_operations(), 4);
  (void)disk.Inspect("/link");
  (void)disk.ReadLink("/link");
  (void)disk.ReadSmallFile("/lock", 9);
  (void)disk.List("/");
  EXPECT_EQ(disk.num_operations(), 4);
  disk.LosePowerAt(5);
  EXPECT_THAT(disk.RemoveDirectory("/d"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(disk.MakeSymlink("f", "/link"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(disk.Lock("/lock", "us"), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(disk.ReadSmallFile("/lock", 9), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT(disk.ReadLink("/link"), StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace cohort::testing
