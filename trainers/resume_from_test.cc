#include "cohort/trainers/resume_from.h"

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::Field;
using ::testing::HasSubstr;
using Kind = ResumeFrom::Kind;

auto Means(Kind kind, int64_t step = 0, std::string_view path = "") {
  return IsOkAndHolds(
      AllOf(Field(&ResumeFrom::kind, kind), Field(&ResumeFrom::step, step), Field(&ResumeFrom::path, path)));
}

TEST(ParseResumeFromTest, KnowsWordsStepsAndPaths) {
  EXPECT_THAT(ParseResumeFrom("auto"), Means(Kind::kAuto));
  EXPECT_THAT(ParseResumeFrom("none"), Means(Kind::kNone));
  EXPECT_THAT(ParseResumeFrom("0"), Means(Kind::kStep, 0));
  EXPECT_THAT(ParseResumeFrom("00001200"), Means(Kind::kStep, 1200));
  EXPECT_THAT(ParseResumeFrom("9223372036854775807"), Means(Kind::kStep, 9223372036854775807));
  for (const std::string_view path : {"run", "./none", "-5", "+5", "1.pt", "5 ", "Auto", "a\nb"}) {
    EXPECT_THAT(ParseResumeFrom(path), Means(Kind::kPath, 0, path));
  }
}

TEST(ParseResumeFromTest, NothingAndStepsTooLargeAreRefused) {
  EXPECT_THAT(ParseResumeFrom(""), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("auto, none, ")));
  EXPECT_THAT(ParseResumeFrom("9223372036854775808"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("too large for a step")));
}

TEST(ParseResumeFromTest, WhatIsShownIsTheSameAgain) {
  for (const std::string_view text : {"auto", "none", "1200", "run/step_00001200"}) {
    EXPECT_EQ(ShowResumeFrom(*ParseResumeFrom(text)), text);
  }
}

class LocateStateFileTest : public ::testing::Test {
 protected:
  LocateStateFileTest() {
    const char* name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = (fs::path(::testing::TempDir()) / name).lexically_normal();
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/run");
  }
  void Write(const std::string& path) {
    fs::create_directories(fs::path(folder_ + "/" + path).parent_path());
    std::ofstream(folder_ + "/" + path) << "x";
  }
  absl::StatusOr<std::string> Locate(const std::string& path) { return LocateStateFile(folder_ + "/" + path); }
  auto IsAt(const std::string& path) { return IsOkAndHolds(folder_ + "/" + path); }
  auto IsMissing(std::string_view what) { return StatusIs(absl::StatusCode::kNotFound, HasSubstr(what)); }

  std::string folder_;
};

TEST_F(LocateStateFileTest, AFileIsItself) {
  Write("any.name");
  EXPECT_THAT(Locate("any.name"), IsAt("any.name"));
}

TEST_F(LocateStateFileTest, ACheckpointHasItUnderItsName) {
  Write("run/step_00000010/manifest.json");
  EXPECT_THAT(Locate("run/step_00000010"), IsMissing("neither state.pt nor state.safetensors"));
  Write("run/step_00000010/state.safetensors");
  EXPECT_THAT(Locate("run/step_00000010"), IsAt("run/step_00000010/state.safetensors"));
  Write("run/step_00000020/manifest.json");
  Write("run/step_00000020/state.pt");
  EXPECT_THAT(Locate("run/step_00000020"), IsAt("run/step_00000020/state.pt"));
}

TEST_F(LocateStateFileTest, ARunHasItInItsNewestCheckpoint) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<std::unique_ptr<CheckpointManager>> manager =
      CheckpointManager::Open(group.get(), {.directory = folder_ + "/run"});
  ABSL_ASSERT_OK(manager);
  for (const int64_t step : {10, 20}) {
    ABSL_ASSERT_OK((*manager)->Save({.step = step}, "state.pt", [](WritableFile& file) { return file.Append("x"); }));
  }
  EXPECT_THAT(Locate("run"), IsAt("run/step_00000020/state.pt"));
  EXPECT_THAT(Locate("run/latest"), IsAt("run/step_00000020/state.pt"));
  EXPECT_THAT(Locate("run/latest/state.pt"), IsAt("run/step_00000020/state.pt"));
  // That one is no longer complete.
  fs::remove(folder_ + "/run/step_00000020/state.pt");
  EXPECT_THAT(Locate("run"), IsAt("run/step_00000010/state.pt"));
}

// A job that keeps one checkpoint. Between two names of a path "latest" moves on, and what it led to goes.
TEST_F(LocateStateFileTest, FindsOneAtAnyTimeWhileAJobSavesAndRemoves) {
  const std::string run = folder_ + "/run";
  Write("run/step_0/manifest.json");
  Write("run/step_0/state.pt");
  fs::create_directory_symlink("step_0", run + "/latest");
  std::atomic<bool> is_done = false;
  std::thread job([&] {
    for (int step = 1; !is_done; ++step) {
      const std::string name = absl::StrCat("step_", step);
      Write(absl::StrCat("run/", name, "/manifest.json"));
      Write(absl::StrCat("run/", name, "/state.pt"));
      fs::create_directory_symlink(name, run + "/next");
      fs::rename(run + "/next", run + "/latest");
      fs::remove_all(absl::StrCat(run, "/step_", step - 1));
    }
  });
  for (int i = 0; i < 3'000; ++i) {
    EXPECT_THAT(Locate("run/latest"), absl_testing::IsOk());
    EXPECT_THAT(Locate("run/latest/state.pt"), absl_testing::IsOk());
    if (HasFailure()) break;
  }
  is_done = true;
  job.join();
}

TEST_F(LocateStateFileTest, ALinkThatLeadsNowhereIsNotLookedForForEver) {
  fs::create_directory_symlink("step_7", folder_ + "/run/latest");
  EXPECT_THAT(Locate("run/latest"), IsMissing("/run/latest\": No such file"));
  EXPECT_THAT(Locate("run/latest/state.pt"), IsMissing("/run/latest/state.pt\": No such file"));
}

TEST_F(LocateStateFileTest, SaysWhatIsNotThere) {
  EXPECT_THAT(Locate("else"), IsMissing("/else\": No such file"));
  EXPECT_THAT(Locate("run"), IsMissing("no complete checkpoint"));
  Write("file");
  EXPECT_THAT(Locate("file/below"), IsMissing("/file/below\": "));
  EXPECT_THAT(Locate("new\nline"), IsMissing("new\\nline"));
}

}  // namespace
}  // namespace cohort
