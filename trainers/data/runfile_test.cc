#include "cohort/trainers/data/runfile.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// A made-up program at `path`; its runfiles hold one file, cohort/data.txt.
void MakeProgram(const fs::path& path) {
  fs::create_directories(path.string() + ".runfiles/cohort");
  std::ofstream(path) << "program";
  std::ofstream(path.string() + ".runfiles/cohort/data.txt") << "data";
}

fs::path TestFolder(const std::string& name) {
  const fs::path folder = fs::path(::testing::TempDir()) / name;
  fs::create_directories(folder);
  return folder;
}

TEST(LocateRunfileTest, FindsWhatBazelBuiltForThisTest) {
  EXPECT_THAT(LocateRunfile("", "cohort/trainers/data/diabetes.csv"),
              IsOkAndHolds(EndsWith("/trainers/data/diabetes.csv")));
}

TEST(LocateRunfileTest, FindsTheRunfilesBesideTheProgram) {
  const fs::path program = TestFolder("beside") / "program";
  MakeProgram(program);
  EXPECT_THAT(LocateRunfile(program.string(), "cohort/data.txt"),
              IsOkAndHolds(program.string() + ".runfiles/cohort/data.txt"));
}

TEST(LocateRunfileTest, FindsTheTreeThatTheProgramLiesIn) {
  const fs::path tree = TestFolder("inside") / "another_name";
  fs::create_directories(tree / "cohort/trainers");
  std::ofstream(tree / "cohort/data.txt") << "data";
  std::ofstream(tree / "cohort/trainers/program") << "program";
  EXPECT_THAT(LocateRunfile((tree / "cohort/trainers/program").string(), "cohort/data.txt"),
              IsOkAndHolds((tree / "cohort/data.txt").string()));
}

TEST(LocateRunfileTest, PrefersTheProgramsOwnTreeToTheEnvironments) {
  const fs::path ours = TestFolder("ours") / "program", theirs = TestFolder("theirs") / "launcher";
  MakeProgram(ours);
  MakeProgram(theirs);
  const std::string before = std::getenv("RUNFILES_DIR");
  ASSERT_EQ(setenv("RUNFILES_DIR", (theirs.string() + ".runfiles").c_str(), 1), 0);
  EXPECT_THAT(LocateRunfile(ours.string(), "cohort/data.txt"),
              IsOkAndHolds(ours.string() + ".runfiles/cohort/data.txt"));
  EXPECT_THAT(LocateRunfile("/nowhere/program", "cohort/data.txt"),
              IsOkAndHolds(theirs.string() + ".runfiles/cohort/data.txt"));
  ASSERT_EQ(setenv("RUNFILES_DIR", before.c_str(), 1), 0);
}

TEST(LocateRunfileTest, SaysWhereItLooked) {
  EXPECT_THAT(LocateRunfile("/nowhere/program", "cohort/no_such_file"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("cohort/no_such_file is in none of: /nowhere/program.runfiles, ")));
}

}  // namespace
}  // namespace cohort
