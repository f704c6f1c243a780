// The trainer runs outside Bazel: by path, through a symlink, from a copy of its runfiles, with no environment at all.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ContainsRegex;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::Not;

// The trainer as Bazel lays it out, built of real files in a folder that Bazel has never seen.
class RunAnywhereTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new std::string(NewFolder());
    // This repository in this test's runfiles; the trainer's are among them.
    const fs::path runfiles = fs::path(PathIn("LINEAR")).parent_path().parent_path();
    for (const std::string_view part : {"trainers", "_solib_k8"}) {
      fs::create_directories(Ours(Runfiles()));
      fs::copy(runfiles / part, fs::path(Ours(Runfiles())) / part, fs::copy_options::recursive);
    }
    fs::copy_file(Inside(), Program());
  }
  static void TearDownTestSuite() { fs::remove_all(*folder_); }

  static std::string Program() { return *folder_ + "/linear"; }
  static std::string Runfiles() { return *folder_ + "/linear.runfiles"; }
  // What is this repository's in a runfiles tree.
  static std::string Ours(const std::string& runfiles) { return runfiles + "/" + std::getenv("TEST_WORKSPACE"); }
  static std::string Inside() { return Ours(Runfiles()) + "/trainers/linear"; }

  static void ExpectToTrain(const std::string& program) {
    SCOPED_TRACE(program);
    const std::string elsewhere = NewFolder();
    const Process::Result result =
        RunToEnd({program, "--epochs=1"}, {.empty_environment = true, .directory = elsewhere});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("442 rows"));
    EXPECT_THAT(FilesIn(elsewhere), ElementsAreArray(FilesOfRun("checkpoints", {0}, {"14"})));
  }

 private:
  static std::string* folder_;
};

std::string* RunAnywhereTest::folder_ = nullptr;

TEST_F(RunAnywhereTest, ByPath) { ExpectToTrain(Program()); }

TEST_F(RunAnywhereTest, ThroughASymlink) {
  const std::string link = NewFolder() + "/link";
  fs::create_symlink(Program(), link);
  ExpectToTrain(link);
}

TEST_F(RunAnywhereTest, FromInsideItsRunfiles) { ExpectToTrain(Inside()); }

TEST_F(RunAnywhereTest, FromACopyOfItsRunfilesUnderAnotherName) {
  const std::string moved = NewFolder() + "/app";
  fs::rename(Runfiles(), moved);
  ExpectToTrain(Ours(moved) + "/trainers/linear");
  fs::rename(moved, Runfiles());
}

TEST_F(RunAnywhereTest, FindsEveryLibraryAndNamesNoFolderOfTheBuilder) {
  for (const std::string& program : {Program(), Inside()}) {
    const Process::Result libraries = RunToEnd({"ldd", program});
    EXPECT_EQ(libraries.exit_code, 0) << libraries.err;
    EXPECT_THAT(libraries.out, ContainsRegex("libtorch_cpu.so[0-9.]* => "));
    EXPECT_THAT(libraries.out, Not(HasSubstr("not found")));
  }
  const Process::Result dynamic = RunToEnd({"readelf", "-d", Program()});
  int num_folders = 0;
  for (const std::string_view line : absl::StrSplit(dynamic.out, '\n')) {
    if (!absl::StrContains(line, "(RUNPATH)") && !absl::StrContains(line, "(RPATH)")) continue;
    const size_t open = line.find('['), close = line.find(']');
    ASSERT_NE(close, line.npos) << line;
    for (const std::string_view searched : absl::StrSplit(line.substr(open + 1, close - open - 1), ':')) {
      EXPECT_TRUE(absl::StartsWith(searched, "$ORIGIN/")) << searched;
      ++num_folders;
    }
  }
  EXPECT_GT(num_folders, 0) << dynamic.out << dynamic.err;
}

}  // namespace
}  // namespace cohort::testing
