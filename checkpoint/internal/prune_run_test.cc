#include "cohort/checkpoint/internal/prune_run.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_writer.h"
#include "cohort/checkpoint/internal/run_lock.h"
#include "cohort/checkpoint/internal/temporary_name.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/checkpoint/testing/crash_file_system.h"
#include "cohort/checkpoint/testing/crash_points.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/manager_save.h"
#include "cohort/runtime/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::CrashFileSystem;
using ::cohort::testing::CrashSubject;
using ::cohort::testing::CrashTally;
using ::cohort::testing::EnumerateCrashes;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::OpenAndSave;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const RetentionPolicy kKeepOneAndTheBest = {.newest = 1, .best = {{.metric = "loss"}}};

// Steps 1 to 4, of which 1 is the best, and 2 is pinned.
void WriteRun(FileSystem& file_system, const std::string& directory) {
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  for (int64_t step = 1; step <= 4; ++step) {
    ABSL_CHECK_OK(OpenAndSave(
        *group, file_system,
        {.directory = directory, .step = step, .save = step, .loss = static_cast<double>(step), .pin = step == 2}));
  }
}

class PruneRunTest : public ::testing::Test {
 protected:
  PruneRunTest() { WriteRun(*FileSystem::Posix(), run_); }

  absl::Status Prune(const RetentionPolicy& policy = kKeepOneAndTheBest) {
    removed_.clear();
    return PruneRun(
        run_, policy,
        [&](const CheckpointInfo& checkpoint, const absl::Status& removed) {
          removed_.push_back(absl::StrCat(checkpoint.step, removed.ok() ? "" : " not"));
        },
        [&](std::string_view warning) { ADD_FAILURE() << warning; });
  }

  const std::string run_ = FreshDirectory() + "/run";
  std::vector<std::string> removed_;
};

TEST_F(PruneRunTest, RemovesWhatThePolicyDoesNotKeep) {
  EXPECT_THAT(Prune(), IsOk());
  EXPECT_THAT(removed_, ElementsAre("3"));
  EXPECT_THAT(NamesIn(run_),
              ElementsAre(".cohort-lock", "latest", "run.json", "step_00000001", "step_00000002", "step_00000004"));
  EXPECT_THAT(Prune({.newest = 1}), IsOk());
  EXPECT_THAT(removed_, ElementsAre("1"));
  EXPECT_THAT(Prune({.newest = 1}), IsOk());
  EXPECT_THAT(removed_, IsEmpty());
}

TEST_F(PruneRunTest, RefusesWhileAJobHasTheDirectoryAndSaysWho) {
  const absl::StatusOr<std::unique_ptr<FileLock>> lock = LockRunDirectory(*FileSystem::Posix(), run_, "saves");
  ASSERT_THAT(lock, IsOk());
  EXPECT_THAT(Prune(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("is in use by another job"),
                                      HasSubstr(absl::StrCat("process ", getpid())), HasSubstr("which saves since"))));
  EXPECT_THAT(removed_, IsEmpty());
  EXPECT_EQ(NamesIn(run_).size(), 7);
}

TEST_F(PruneRunTest, RefusesABadPolicyAndWhatIsNoRun) {
  EXPECT_THAT(Prune({.newest = 0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("newest is 0")));
  const std::string empty = FreshDirectory();
  const auto no_one = [](const CheckpointInfo&, const absl::Status&) { ADD_FAILURE(); };
  EXPECT_THAT(PruneRun(empty, {.newest = 1}, no_one, [](std::string_view) {}), IsOk());
  EXPECT_THAT(NamesIn(empty), IsEmpty()) << "no lock file where no run is";
  EXPECT_THAT(PruneRun(empty + "/none", {.newest = 1}, no_one, [](std::string_view) {}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(PruneRunTest, LeavesAloneWhatIsNoCheckpointOfTheRun) {
  mkdir((run_ + "/step_00000000").c_str(), 0777);
  WriteFile(run_ + "/step_00000003/state.pt", "cut");
  WriteFile(run_ + "/step_7.pt", "junk");
  EXPECT_THAT(Prune({.newest = 1}), IsOk());
  EXPECT_THAT(removed_, ElementsAre("1"));
  EXPECT_THAT(NamesIn(run_), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000000", "step_00000002",
                                         "step_00000003", "step_00000004", "step_7.pt"));
}

TEST_F(PruneRunTest, WhatElseIsInACheckpointGoesWithItButNothingBehindASymlink) {
  const std::string elsewhere = FreshDirectory();
  WriteFile(elsewhere + "/precious", "x");
  WriteFile(run_ + "/step_00000003/notes", "x");
  std::filesystem::create_symlink(elsewhere, run_ + "/step_00000003/link");
  std::filesystem::create_symlink(elsewhere + "/precious", run_ + "/step_00000003/file_link");
  EXPECT_THAT(Prune(), IsOk());
  EXPECT_THAT(removed_, ElementsAre("3"));
  EXPECT_THAT(NamesIn(elsewhere), ElementsAre("precious"));
  EXPECT_EQ(NamesIn(run_).size(), 6);
}

TEST_F(PruneRunTest, OneThatCannotBeRemovedKeepsNoneOfTheOthers) {
  // A directory in it is somebody else's.
  std::filesystem::create_directory(run_ + "/step_00000001/theirs");
  EXPECT_THAT(Prune({.newest = 1}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("theirs")));
  EXPECT_THAT(removed_, ElementsAre("1 not", "3"));
  const absl::StatusOr<RunDirectory> run = ReadRunDirectory(run_);
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->checkpoints.size(), 3) << "it is as whole as before";
  EXPECT_THAT(run->skipped, IsEmpty());
}

TEST_F(PruneRunTest, TheRunMayBeNamedByASymlink) {
  const std::string link = absl::StrCat(run_, "_link");
  std::filesystem::create_symlink(run_, link);
  std::filesystem::create_symlink("nowhere", absl::StrCat(run_, "/", TemporaryPrefix("latest"), "1-00"));
  std::string warned;
  EXPECT_THAT(
      PruneRun(
          link, {.newest = 1}, [](const CheckpointInfo&, const absl::Status& removed) { EXPECT_THAT(removed, IsOk()); },
          [&](std::string_view warning) { warned = warning; }),
      IsOk());
  EXPECT_EQ(warned, "");
  EXPECT_FALSE(std::filesystem::exists(run_ + "/step_00000001"));
}

TEST_F(PruneRunTest, ALatestThatLedToWhatGoesLeadsToTheNewest) {
  ASSERT_THAT(PointLatestAt(*FileSystem::Posix(), run_, "step_00000003"), IsOk());
  EXPECT_THAT(Prune(), IsOk());
  EXPECT_EQ(std::filesystem::read_symlink(run_ + "/latest"), "step_00000004");
  ASSERT_THAT(PointLatestAt(*FileSystem::Posix(), run_, "step_00000002"), IsOk());
  EXPECT_THAT(Prune(), IsOk());
  EXPECT_EQ(std::filesystem::read_symlink(run_ + "/latest"), "step_00000002") << "what stays is nobody's concern";
}

TEST_F(PruneRunTest, FinishesWhatFailedBefore) {
  const auto prune = [](CrashFileSystem& disk) {
    return PruneRun(
        "/run", {.newest = 1}, [](const CheckpointInfo&, const absl::Status&) {}, [](std::string_view) {}, &disk);
  };
  for (int64_t n = 1;; ++n) {
    CrashFileSystem disk;
    WriteRun(disk, "/run");
    const int64_t failing = disk.num_operations() + n;
    disk.FailAt(failing, absl::UnavailableError("the disk is gone"));
    const absl::Status pruned = prune(disk);
    EXPECT_TRUE(!pruned.ok() || disk.num_operations() < failing) << disk.Log();
    if (pruned.ok()) break;
    EXPECT_THAT(prune(disk), IsOk()) << disk.Log();
    const absl::StatusOr<std::vector<std::string>> names = disk.List("/run");
    ASSERT_THAT(names, IsOk());
    EXPECT_EQ(names->size(), 5) << disk.Log();  // run.json, latest, the lock, the newest one and the pinned one
  }
}

// ---- At every crash point ----

class PruningSubject : public CrashSubject {
 public:
  using Pruner = absl::Status (*)(CrashFileSystem& disk);
  explicit PruningSubject(Pruner prune) : prune_(prune) {}

  void ForEachDisk(WithDisk with) override {
    for (const std::string_view latest : {"step_00000004", "step_00000003"}) {
      CrashFileSystem disk;
      WriteRun(disk, "/run");
      ABSL_CHECK_OK(PointLatestAt(disk, "/run", latest));
      with(disk);
    }
  }
  void Begin(CrashFileSystem&) override {}
  absl::Status Act(CrashFileSystem& disk) override { return prune_(disk); }
  Violations CheckRunning(CrashFileSystem& disk, bool acted) override { return Check(disk, acted); }
  Violations CheckRebooted(CrashFileSystem& disk, bool acted) override { return Check(disk, acted); }

 private:
  static Violations Check(CrashFileSystem& disk, bool acted) {
    const absl::StatusOr<RunDirectory> run = ReadRunDirectory(disk, "/run");
    if (!run.ok()) return {std::string(run.status().message())};
    Violations violations;
    std::vector<int64_t> steps;
    for (const CheckpointInfo& checkpoint : run->checkpoints) steps.push_back(checkpoint.step);
    for (const SkippedCheckpoint& skipped : run->skipped) violations.push_back(skipped.name + ": " + skipped.reason);
    const std::vector<int64_t> kept = {4, 2, 1}, all = {4, 3, 2, 1};
    if (steps != kept && (acted || steps != all)) violations.push_back("a checkpoint is gone, or is still there");
    const absl::StatusOr<std::string> latest = disk.ReadLink("/run/latest");
    if (!latest.ok() || !disk.Inspect("/run/" + *latest).ok()) violations.push_back("\"latest\" leads nowhere");
    return violations;
  }

  const Pruner prune_;
};

absl::Status PruneOn(CrashFileSystem& disk) {
  return PruneRun(
      "/run", kKeepOneAndTheBest, [](const CheckpointInfo&, const absl::Status&) {}, [](std::string_view) {}, &disk);
}

// The same in another order: what "latest" leads to goes first.
absl::Status PruneBeforeLatest(CrashFileSystem& disk) {
  const absl::Status removed = disk.Rename("/run/step_00000003", "/run/.gone");
  if (!removed.ok() && !absl::IsNotFound(removed)) return removed;
  if (const absl::Status pointed = PointLatestAt(disk, "/run", "step_00000004"); !pointed.ok()) return pointed;
  return disk.SyncDirectory("/run");
}

// The files go before the name.
absl::Status RemoveInPlace(CrashFileSystem& disk) {
  if (const absl::Status pruned = PointLatestAt(disk, "/run", "step_00000004"); !pruned.ok()) return pruned;
  (void)disk.Remove("/run/step_00000003/state.pt");
  (void)disk.Remove("/run/step_00000003/manifest.json");
  (void)disk.RemoveDirectory("/run/step_00000003");
  return disk.SyncDirectory("/run");
}

TEST(PruneRunCrashTest, AtEveryCrashPointAllThatIsKeptIsThereAndWholeAndLatestLeadsSomewhere) {
  PruningSubject subject(PruneOn);
  const CrashTally tally = EnumerateCrashes("prune", subject);
  std::cout << tally.crash_points << " crash points, " << tally.states << " states\n";
  EXPECT_THAT(tally.violations, IsEmpty());
  EXPECT_GE(tally.crash_points, 20);
  EXPECT_GE(tally.states, 100);
}

TEST(PruneRunCrashTest, TheDetectorFindsALatestThatLeadsNowhere) {
  PruningSubject subject(PruneBeforeLatest);
  EXPECT_THAT(EnumerateCrashes("before latest", subject).violations,
              ::testing::Contains(HasSubstr("\"latest\" leads nowhere")));
}

TEST(PruneRunCrashTest, TheDetectorFindsARemovalInPlace) {
  PruningSubject subject(RemoveInPlace);
  EXPECT_THAT(EnumerateCrashes("in place", subject).violations,
              ::testing::Contains(HasSubstr("step_00000003: state.pt is missing")));
}

}  // namespace
}  // namespace cohort::internal
