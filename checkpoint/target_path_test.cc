#include "cohort/checkpoint/target_path.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/testing/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ResolveTargetTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Resolve(std::string_view below) {
    return ResolveTarget(*FileSystem::Posix(), absl::StrCat(dir_, "/", below));
  }
  void Link(const std::string& target, const std::string& name) {
    ASSERT_EQ(symlink(target.c_str(), (dir_ + "/" + name).c_str()), 0);
  }
  void Directory(const std::string& name) { std::filesystem::create_directories(dir_ + "/" + name); }

  auto IsInvalid(std::string_view why) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)); }

  const std::string dir_ = FreshDirectory();
};

TEST_F(ResolveTargetTest, LeavesAPlainPathAsItIs) {
  EXPECT_THAT(Resolve("m.pt"), IsOkAndHolds(dir_ + "/m.pt"));
  WriteFile(dir_ + "/m.pt", "old");
  EXPECT_THAT(Resolve("m.pt"), IsOkAndHolds(dir_ + "/m.pt"));
  EXPECT_THAT(ResolveTarget(*FileSystem::Posix(), "/m.pt"), IsOkAndHolds("/m.pt"));
}

TEST_F(ResolveTargetTest, TakesWhatIsMissingForDirectoriesAndMakesNone) {
  EXPECT_THAT(Resolve("a/b/c/d/m.pt"), IsOkAndHolds(dir_ + "/a/b/c/d/m.pt"));
  EXPECT_THAT(NamesIn(dir_), IsEmpty());
}

TEST_F(ResolveTargetTest, DropsDotsAndDoubledSlashes) {
  Directory("x");
  EXPECT_THAT(Resolve("x/../y/.//m.pt"), IsOkAndHolds(dir_ + "/y/m.pt"));
  EXPECT_THAT(Resolve("none/../m.pt"), IsOkAndHolds(dir_ + "/m.pt"));
  EXPECT_THAT(Resolve("none/deep/../../x/m.pt"), IsOkAndHolds(dir_ + "/x/m.pt"));
  EXPECT_THAT(ResolveTarget(*FileSystem::Posix(), "/../../m.pt"), IsOkAndHolds("/m.pt"));
}

TEST_F(ResolveTargetTest, TakesTheParentOfWhatASymlinkReallyIs) {
  Directory("real/deep");
  Link("real/deep", "link");
  EXPECT_THAT(Resolve("link/../m.pt"), IsOkAndHolds(dir_ + "/real/m.pt"));
}

TEST_F(ResolveTargetTest, FollowsSymlinks) {
  Directory("real");
  WriteFile(dir_ + "/real/m.pt", "old");
  Link("real", "relative");
  Link(dir_ + "/real", "absolute");
  Link("absolute/m.pt", "file");
  EXPECT_THAT(Resolve("relative/m.pt"), IsOkAndHolds(dir_ + "/real/m.pt"));
  EXPECT_THAT(Resolve("absolute/new.pt"), IsOkAndHolds(dir_ + "/real/new.pt"));
  EXPECT_THAT(Resolve("file"), IsOkAndHolds(dir_ + "/real/m.pt"));
}

TEST_F(ResolveTargetTest, FollowsADanglingSymlinkToWhereItPoints) {
  Link("not/yet/m.pt", "dangling");
  Link("gone", "directory");
  EXPECT_THAT(Resolve("dangling"), IsOkAndHolds(dir_ + "/not/yet/m.pt"));
  EXPECT_THAT(Resolve("directory/m.pt"), IsOkAndHolds(dir_ + "/gone/m.pt"));
}

TEST_F(ResolveTargetTest, RefusesASymlinkLoop) {
  Link("b", "a");
  Link("a", "b");
  EXPECT_THAT(Resolve("a"), IsInvalid("symlinks, probably in a loop at"));
  EXPECT_THAT(Resolve("a/m.pt"), IsInvalid("symlinks"));
}

TEST_F(ResolveTargetTest, RefusesWhatNamesADirectory) {
  Directory("full");
  WriteFile(dir_ + "/full/precious", "");
  Link("full", "link");
  Link("/", "root");
  Link("none/", "slash");
  for (const char* path : {"full", "full/", "link", "root", "slash", "none/", ".", "full/.", "full/..", "none/."}) {
    EXPECT_THAT(Resolve(path), IsInvalid("names a directory; name a file")) << path;
  }
  EXPECT_THAT(ResolveTarget(*FileSystem::Posix(), "/"), IsInvalid("path \"/\" names a directory"));
}

TEST_F(ResolveTargetTest, RefusesAPlaceUnderAFile) {
  WriteFile(dir_ + "/file", "");
  Link("file", "link");
  EXPECT_THAT(Resolve("file/m.pt"),
              IsInvalid(absl::StrCat("lies under \"", dir_, "/file\", which is not a directory")));
  EXPECT_THAT(Resolve("link/a/m.pt"), IsInvalid("lies under"));
  EXPECT_THAT(Resolve("file/../m.pt"), IsInvalid("lies under"));
  EXPECT_THAT(Resolve("file/"), IsInvalid("lies under"));
}

TEST_F(ResolveTargetTest, RefusesToReplaceADevice) {
  mkfifo((dir_ + "/fifo").c_str(), 0600);
  EXPECT_THAT(Resolve("fifo"), IsInvalid("neither a file nor a directory"));
  EXPECT_THAT(ResolveTarget(*FileSystem::Posix(), "/dev/null"), IsInvalid("neither a file nor a directory"));
}

TEST_F(ResolveTargetTest, RefusesWhatIsTooLongAlsoBelowWhatIsMissing) {
  EXPECT_THAT(Resolve(std::string(300, 'n')), IsInvalid("has a name of 300 bytes; at most 255 are allowed"));
  EXPECT_THAT(Resolve("none/" + std::string(300, 'n') + "/m.pt"), IsInvalid("has a name of 300 bytes"));
  std::string deep;
  for (int i = 0; i < 2500; ++i) deep += "d/";
  EXPECT_THAT(Resolve(deep + "m.pt"), IsInvalid("bytes long; at most 3840 are allowed"));
}

}  // namespace
}  // namespace cohort
