#include "cohort/checkpoint/checkpoint_manager.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/temporary_name.h"
#include "cohort/checkpoint/testing/crash_file_system.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/write_checkpoint.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::cohort::testing::CrashFileSystem;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::cohort::testing::RunRanks;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

using Manager = std::unique_ptr<CheckpointManager>;

class CheckpointManagerTest : public ::testing::Test {
 protected:
  CheckpointManagerOptions Options() {
    return {.directory = run_, .timeout = absl::Minutes(1), .on_warning = [this](std::string_view warning) {
              absl::MutexLock lock(mutex_);
              warnings_.emplace_back(warning);
            }};
  }
  CheckpointManagerOptions Keeping(RetentionPolicy policy) {
    CheckpointManagerOptions options = Options();
    options.retention = std::move(policy);
    return options;
  }

  static absl::StatusOr<CheckpointReport> Save(CheckpointManager& manager, int64_t step,
                                               std::map<std::string, double> metrics = {}, bool pin = false) {
    return manager.Save({.step = step, .metrics = std::move(metrics), .pin = pin}, "state.pt",
                        [&](WritableFile& file) { return file.Append(absl::StrCat("state of step ", step)); });
  }

  // In a world of one: opens, saves these steps, and closes.
  void SaveSteps(const std::vector<int64_t>& steps, const CheckpointManagerOptions& options) {
    const auto group = ProcessGroup::WorldOfOne();
    absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), options);
    ASSERT_THAT(manager, IsOk());
    for (const int64_t step : steps) EXPECT_THAT(Save(**manager, step), IsOk()) << step;
  }
  void SaveSteps(const std::vector<int64_t>& steps) { SaveSteps(steps, Options()); }

  // In a world of one: what Resume finds and reads.
  struct Resumed {
    absl::Status status;
    int64_t step = -1;
    std::string state;
  };
  Resumed Resume(std::optional<int64_t> step = std::nullopt, VerifyDepth depth = VerifyDepth::kManifest) {
    const auto group = ProcessGroup::WorldOfOne();
    absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Options());
    if (!manager.ok()) return {manager.status()};
    Resumed resumed;
    const auto load = [&](const CheckpointInfo& checkpoint) { return Load(checkpoint, resumed); };
    if (step.has_value()) {
      resumed.status = (*manager)->ResumeFrom(*step, load, depth).status();
    } else {
      resumed.status = (*manager)->Resume(load, depth).status();
    }
    return resumed;
  }
  // As a loader that verifies what it reads.
  static absl::Status Load(const CheckpointInfo& checkpoint, Resumed& resumed) {
    const std::string state = ReadFile(checkpoint.path + "/state.pt");
    if (!state.starts_with("state of step ")) return absl::InvalidArgumentError("that is no state");
    resumed.step = checkpoint.step;
    resumed.state = state;
    return absl::OkStatus();
  }

  // What there is but for hidden files.
  std::vector<std::string> Names() {
    std::vector<std::string> names = NamesIn(run_);
    std::erase_if(names, [](const std::string& name) { return name.starts_with("."); });
    return names;
  }
  std::string Latest() { return std::filesystem::read_symlink(run_ + "/latest"); }

  // Every rank of three gets an error of this code and text from Open or what `then` does with the manager.
  void ExpectOnAllRanks(const CheckpointManagerOptions& options, absl::StatusCode code, const std::string& why,
                        std::function<absl::Status(CheckpointManager&)> then = nullptr) {
    const auto outcomes = RunRanks(3, [&](ProcessGroup& group) -> absl::Status {
      ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, options));
      return then ? then(*manager) : absl::OkStatus();
    });
    EXPECT_THAT(outcomes, Each(StatusIs(code, AllOf(HasSubstr("rank 0: "), HasSubstr(why)))));
    EXPECT_THAT(outcomes, Each(outcomes[0]));
  }

  const std::string dir_ = FreshDirectory();
  const std::string run_ = dir_ + "/run";
  absl::Mutex mutex_;
  std::vector<std::string> warnings_;
};

// ---- Saving ----

TEST_F(CheckpointManagerTest, EveryRankKnowsWhatWasSaved) {
  const auto outcomes = RunRanks(3, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, Options()));
    EXPECT_EQ(manager->directory(), run_);
    EXPECT_EQ(manager->run_id(), "");
    EXPECT_EQ(manager->newest(), std::nullopt);
    ABSL_ASSIGN_OR_RETURN(const CheckpointReport report, Save(*manager, 1200, {{"loss", 0.5}}));
    EXPECT_EQ(report.checkpoint.path, run_ + "/step_00001200");
    EXPECT_EQ(report.checkpoint.step, 1200);
    EXPECT_EQ(report.checkpoint.world_size, 3);
    EXPECT_THAT(report.checkpoint.metrics, ElementsAre(std::pair("loss", 0.5)));
    EXPECT_EQ(report.num_bytes, 18);
    EXPECT_EQ(ReadFile(report.checkpoint.path + "/state.pt"), "state of step 1200");
    EXPECT_EQ(ReadFile(run_ + "/latest/state.pt"), "state of step 1200");
    EXPECT_GE(report.blocked, report.publish_time);
    EXPECT_EQ(manager->newest()->path, report.checkpoint.path);
    EXPECT_THAT(manager->run_id(), SizeIs(16));
    return absl::OkStatus();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00001200"));
  EXPECT_THAT(NamesIn(run_ + "/step_00001200"), ElementsAre("manifest.json", "state.pt"));
  EXPECT_EQ(Latest(), "step_00001200");
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointManagerTest, ACheckpointMayHaveSeveralFiles) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Options());
  ASSERT_THAT(manager, IsOk());
  const auto one = [](WritableFile& file) { return file.Append("one"); };
  const auto none = [](WritableFile&) { return absl::OkStatus(); };
  const absl::StatusOr<CheckpointReport> report = (*manager)->Save({.step = 0}, {{"a.pt", one}, {"b", none}});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->num_bytes, 3);
  ASSERT_THAT(report->checkpoint.files, SizeIs(2));
  EXPECT_EQ(report->checkpoint.files[1].name, "b");
  EXPECT_EQ(report->checkpoint.files[1].crc32, 0u);
}

TEST_F(CheckpointManagerTest, AFailedSaveTakesNothingAwayAndTheNextOneIsTried) {
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, Keeping({.newest = 1})));
    EXPECT_THAT(Save(*manager, 1), IsOk());
    const auto names = NamesIn(run_);
    const auto fails = [](WritableFile& file) -> absl::Status {
      ABSL_RETURN_IF_ERROR(file.Append("half"));
      throw std::runtime_error("the payload failed");
    };
    EXPECT_THAT(manager->Save({.step = 2}, "state.pt", fails),
                StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("rank 0: "), HasSubstr("the payload failed"))));
    EXPECT_THAT(Save(*manager, 0), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_EQ(NamesIn(run_), names);
    EXPECT_EQ(manager->num_failed_saves(), 2);
    EXPECT_EQ(manager->newest()->step, 1);
    EXPECT_THAT(Save(*manager, 2), IsOk());
    return manager->WaitForRemovals();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000002"));
}

TEST_F(CheckpointManagerTest, ARankThatIsNotReadyKeepsAllFromSaving) {
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, Options()));
    const absl::Status ready = group.rank() == 1 ? absl::DataLossError("my part is gone") : absl::OkStatus();
    return manager
        ->Save(
            {.step = 1}, "state.pt", [](WritableFile& file) { return file.Append("x"); }, ready)
        .status();
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kDataLoss, HasSubstr("rank 1: my part is gone"))));
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(CheckpointManagerTest, AnErrorOfOneWriteIsAnErrorOfTheSave) {
  CrashFileSystem disk;
  const auto group = ProcessGroup::WorldOfOne();
  CheckpointManagerOptions options = Options();
  options.directory = "/run";
  absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), options, &disk);
  ASSERT_THAT(manager, IsOk());
  ASSERT_THAT(Save(**manager, 1), IsOk());
  const auto ignores_errors = [&](WritableFile& file) {
    disk.FailAt(disk.num_operations() + 1, absl::ResourceExhaustedError("no space"));
    (void)file.Append("a");
    (void)file.Append("b");
    return absl::OkStatus();
  };
  EXPECT_THAT((*manager)->Save({.step = 2}, "state.pt", ignores_errors),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("0 bytes had been written and 1 more")));
  EXPECT_THAT(*disk.List("/run"), UnorderedElementsAre(".cohort-lock", "latest", "run.json", "step_00000001"));
}

// ---- What is kept ----

TEST_F(CheckpointManagerTest, TheNewestByNumberAreKeptAndTheBestOne) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> manager =
      CheckpointManager::Open(group.get(), Keeping({.newest = 1, .best = {{.metric = "loss"}}}));
  ASSERT_THAT(manager, IsOk());
  for (const int64_t step : {9900, 10000, 10100}) {
    EXPECT_THAT(Save(**manager, step, {{"loss", step == 9900 ? 0.1 : 0.2}}), IsOk());
    EXPECT_THAT((*manager)->WaitForRemovals(), IsOk());
  }
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00009900", "step_00010100"));
}

TEST_F(CheckpointManagerTest, APinnedOneStaysWhoeverPinnedIt) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Keeping({.newest = 1}));
  ASSERT_THAT(manager, IsOk());
  EXPECT_THAT(Save(**manager, 1, {}, /*pin=*/true), IsOk());
  EXPECT_THAT(Save(**manager, 2), IsOk());
  WriteFile(run_ + "/step_00000002/pinned", "");
  EXPECT_THAT(Save(**manager, 3), IsOk());
  EXPECT_THAT(Save(**manager, 4), IsOk());
  EXPECT_THAT((*manager)->WaitForRemovals(), IsOk());
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000001", "step_00000002", "step_00000004"));
}

TEST_F(CheckpointManagerTest, WhatIsNotOursIsNeverRemoved) {
  SaveSteps({1});
  const std::vector<std::string> others = {"model_epoch_0.pth", "notes", "step_abc", "step_00000007", "step_x.pt"};
  for (const std::string& name : others) WriteFile(run_ + "/" + name, "mine");
  std::filesystem::create_directory(run_ + "/step_00000009");  // no manifest
  std::filesystem::copy(run_ + "/step_00000001", run_ + "/step_00000008");
  std::string manifest = ReadFile(run_ + "/step_00000008/manifest.json");
  WriteFile(run_ + "/step_00000008/manifest.json", manifest.substr(1));  // damaged
  SaveSteps({2, 3, 4}, Keeping({.newest = 1}));
  for (const std::string& name : others) EXPECT_EQ(ReadFile(run_ + "/" + name), "mine");
  EXPECT_THAT(Names(), AllOf(Contains("step_00000009"), Contains("step_00000008"), Contains("step_00000004"),
                             Not(Contains("step_00000003")), Not(Contains("step_00000001"))));
}

TEST_F(CheckpointManagerTest, NothingIsRemovedThroughASymlink) {
  const std::string precious = dir_ + "/precious";
  std::filesystem::create_directory(precious);
  WriteFile(precious + "/notes", "mine");
  std::filesystem::create_directory(run_);
  for (const char* kind : {"removed", "step"}) {
    std::filesystem::create_symlink(precious, absl::StrCat(run_, "/", internal::TemporaryPrefix(kind), "1-00"));
  }
  SaveSteps({10});
  EXPECT_THAT(NamesIn(precious), ElementsAre("notes"));
  EXPECT_THAT(NamesIn(run_), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000010"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointManagerTest, ACheckpointInWhichSomebodyHasPutADirectoryStaysWhole) {
  SaveSteps({10, 20});
  std::filesystem::create_directory(run_ + "/step_00000010/notes");
  SaveSteps({30}, Keeping({.newest = 1}));
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000010", "step_00000030"));
  EXPECT_THAT(NamesIn(run_ + "/step_00000010"), ElementsAre("manifest.json", "notes", "state.pt"));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("notes\" is a directory")));
}

TEST_F(CheckpointManagerTest, WhatADeadJobLeftUnfinishedIsRemoved) {
  SaveSteps({1});
  const auto group = ProcessGroup::WorldOfOne();
  // A process that dies in the middle of a save.
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Options());
    (void)(*manager)->Save({.step = 2}, "state.pt", [](WritableFile& file) {
      (void)file.Append("half");
      _exit(0);
      return absl::OkStatus();
    });
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_THAT(NamesIn(run_), SizeIs(5));  // .cohort-lock, .cohort-step-..., latest, run.json, step_00000001
  EXPECT_EQ(Resume().step, 1);
  EXPECT_THAT(NamesIn(run_), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000001"));
}

// ---- Resuming ----

TEST_F(CheckpointManagerTest, AllRanksGoOnFromTheNewest) {
  SaveSteps({10, 20});
  const auto outcomes = RunRanks(3, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, Options()));
    Resumed resumed;
    ABSL_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> from,
                          manager->Resume([&](const CheckpointInfo& checkpoint) {
                            return group.Agree("loaded", Load(checkpoint, resumed));
                          }));
    EXPECT_EQ(from->step, 20);
    EXPECT_EQ(resumed.state, "state of step 20");
    EXPECT_THAT(Save(*manager, 20), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("step 20 cannot be saved after step 20; steps must grow")));
    return Save(*manager, 21).status();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_EQ(Latest(), "step_00000021");
}

TEST_F(CheckpointManagerTest, WithoutACheckpointThereIsNothingToGoOnFrom) {
  const Resumed resumed = Resume();
  EXPECT_THAT(resumed.status, IsOk());
  EXPECT_EQ(resumed.step, -1);
  EXPECT_THAT(Resume(7).status,
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has no checkpoint of step 7; there is none")));
}

TEST_F(CheckpointManagerTest, DamagedOnesAreSkippedWithOneWarningAndRefusedByName) {
  SaveSteps({20, 30});
  const std::string newest = run_ + "/step_00000030";
  const std::string state = ReadFile(newest + "/state.pt"), manifest = ReadFile(newest + "/manifest.json");
  struct Damage {
    std::string_view what;
    std::function<void()> make;
    std::string_view reason;
  };
  const Damage damages[] = {
      {"no manifest", [&] { unlink((newest + "/manifest.json").c_str()); }, "manifest.json"},
      {"cut", [&] { WriteFile(newest + "/state.pt", state.substr(0, 5)); }, "5 bytes"},
      {"empty", [&] { WriteFile(newest + "/state.pt", ""); }, "0 bytes"},
      {"missing", [&] { unlink((newest + "/state.pt").c_str()); }, "state.pt"},
      {"changed", [&] { WriteFile(newest + "/state.pt", "X" + state.substr(1)); }, "checksum"},
      {"manifest changed", [&] { WriteFile(newest + "/manifest.json", "X" + manifest.substr(1)); }, "manifest"},
  };
  for (const Damage& damage : damages) {
    WriteFile(newest + "/state.pt", state);
    WriteFile(newest + "/manifest.json", manifest);
    damage.make();
    warnings_.clear();
    const Resumed resumed = Resume();
    EXPECT_THAT(resumed.status, IsOk()) << damage.what;
    EXPECT_EQ(resumed.state, "state of step 20") << damage.what;
    EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("30"), HasSubstr(damage.reason)))) << damage.what;
    EXPECT_THAT(Resume(30).status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr(damage.reason))) << damage.what;
  }
}

// A job that was rolled back, or started as another user, must not begin anew because it can read nothing.
TEST_F(CheckpointManagerTest, IfNothingThatIsThereCanBeReadThatIsAnErrorOnAllRanksAndNoReasonToBeginAnew) {
  SaveSteps({20, 30});
  const auto each = [&](std::string_view name, const std::function<void(const std::string& path)>& spoil) {
    for (const char* step : {"/step_00000020/", "/step_00000030/"}) spoil(absl::StrCat(run_, step, name));
  };
  const auto resume = [](CheckpointManager& manager) {
    return manager.Resume([](const CheckpointInfo&) { return absl::OkStatus(); }).status();
  };
  each("state.pt", [](const std::string& path) { WriteFile(path, "short"); });
  ExpectOnAllRanks(Options(), absl::StatusCode::kDataLoss, "there is no checkpoint that can be resumed from", resume);
  each("manifest.json", [](const std::string& path) { unlink(path.c_str()); });
  ExpectOnAllRanks(Options(), absl::StatusCode::kDataLoss, "step_00000020", resume);
  each("", [](const std::string& path) { std::filesystem::remove_all(path); });
  EXPECT_THAT(Resume().status, IsOk()) << "a run that was killed before its first save begins anew";
}

TEST_F(CheckpointManagerTest, ADamagedOneIsNeitherKeptNorRemovedNorTakenForTheNewest) {
  SaveSteps({10, 20, 30});
  WriteFile(run_ + "/step_00000030/state.pt", "sXate of step 30");
  const auto group = ProcessGroup::WorldOfOne();
  {
    absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Keeping({.newest = 2}));
    ASSERT_THAT(manager, IsOk());
    Resumed resumed;
    EXPECT_THAT((*manager)->Resume([&](const CheckpointInfo& checkpoint) { return Load(checkpoint, resumed); }),
                IsOk());
    EXPECT_EQ(resumed.step, 20);
    EXPECT_THAT(Save(**manager, 25), IsOk());
  }
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000020", "step_00000025", "step_00000030"));
  // Who opens it now does not know of the damage.
  absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Options());
  ASSERT_THAT(manager, IsOk());
  EXPECT_EQ((*manager)->newest()->step, 25);
}

TEST_F(CheckpointManagerTest, ChecksumsAreComparedBeforeLoadingIfAsked) {
  SaveSteps({20, 30});
  WriteFile(run_ + "/step_00000030/state.pt", "state of step 3X");  // which Load does not notice
  EXPECT_EQ(Resume().state, "state of step 3X");
  EXPECT_EQ(Resume(std::nullopt, VerifyDepth::kChecksums).state, "state of step 20");
  EXPECT_THAT(Resume(30, VerifyDepth::kChecksums).status, StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
}

TEST_F(CheckpointManagerTest, AnErrorThatIsNoDamageIsNotHiddenByGoingBack) {
  SaveSteps({20, 30});
  ExpectOnAllRanks(Options(), absl::StatusCode::kInvalidArgument, "another optimizer", [](CheckpointManager& manager) {
    return manager.Resume([](const CheckpointInfo&) { return absl::InvalidArgumentError("another optimizer"); })
        .status();
  });
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointManagerTest, AnErrorThatAllRanksHaveAgreedOnIsReturnedAsItIs) {
  SaveSteps({20});
  const auto outcomes = RunRanks(3, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, Options()));
    return manager
        ->Resume([&](const CheckpointInfo&) {
          return group.Agree("loaded", group.rank() == 1 ? absl::DataLossError("my part is gone") : absl::OkStatus());
        })
        .status();
  });
  EXPECT_THAT(outcomes, Each(absl::DataLossError("rank 1: my part is gone")));
}

TEST_F(CheckpointManagerTest, ARunThatWentBackGoesOnFromWhatItSavedLast) {
  SaveSteps({10, 20, 30});
  const auto group = ProcessGroup::WorldOfOne();
  {
    absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Options());
    ASSERT_THAT(manager, IsOk());
    EXPECT_THAT((*manager)->ResumeFrom(10, [](const CheckpointInfo&) { return absl::OkStatus(); }), IsOk());
    EXPECT_THAT(Save(**manager, 20), IsOk());
  }
  EXPECT_EQ(Latest(), "step_00000020-2");
  EXPECT_EQ(Resume().step, 20);
  SaveSteps({25}, Keeping({.newest = 2}));  // of those that were saved last
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000020-2", "step_00000025"));
}

TEST_F(CheckpointManagerTest, AStepThatIsNotThereIsAnErrorThatListsThoseThatAre) {
  SaveSteps({10, 20});
  ExpectOnAllRanks(Options(), absl::StatusCode::kNotFound, "has no checkpoint of step 15; there are 10, 20",
                   [](CheckpointManager& manager) {
                     return manager.ResumeFrom(15, [](const CheckpointInfo&) { return absl::OkStatus(); }).status();
                   });
}

// ---- Whose run it is ----

TEST_F(CheckpointManagerTest, AnotherRunIsRefusedByName) {
  CheckpointManagerOptions mine = Options();
  mine.run_id = "mine";
  SaveSteps({1}, mine);
  SaveSteps({2});  // whatever run it is
  CheckpointManagerOptions yours = Options();
  yours.run_id = "yours";
  ExpectOnAllRanks(yours, absl::StatusCode::kFailedPrecondition,
                   "belongs to the run \"mine\", and this one is \"yours\"");
  EXPECT_THAT(ReadFile(run_ + "/run.json"), HasSubstr("\"mine\""));
}

TEST_F(CheckpointManagerTest, ANewRunIsCalledAsTheLauncherSays) {
  setenv("TORCHELASTIC_RUN_ID", "job-17", 1);
  SaveSteps({1});
  setenv("TORCHELASTIC_RUN_ID", "job-18", 1);  // the same run, launched again
  SaveSteps({2});
  unsetenv("TORCHELASTIC_RUN_ID");
  EXPECT_THAT(ReadFile(run_ + "/step_00000002/manifest.json"), HasSubstr("\"job-17\""));
}

TEST_F(CheckpointManagerTest, AnIdOfTheLauncherThatIsNoneIsRefusedBeforeAnythingIsMade) {
  setenv("TORCHELASTIC_RUN_ID", "two\nlines", 1);
  ExpectOnAllRanks(Options(), absl::StatusCode::kInvalidArgument, "TORCHELASTIC_RUN_ID: the run id is \"two\\nlines\"");
  EXPECT_FALSE(std::filesystem::exists(run_));
  unsetenv("TORCHELASTIC_RUN_ID");
}

TEST_F(CheckpointManagerTest, AnotherModelIsRefusedAndBothAreNamed) {
  CheckpointManagerOptions small = Options();
  small.model = "2 tensors, 11 elements";
  SaveSteps({1}, small);
  CheckpointManagerOptions large = Options();
  large.model = "4 tensors, 99 elements";
  ExpectOnAllRanks(large, absl::StatusCode::kFailedPrecondition,
                   "step_00000001\" has 2 tensors, 11 elements, and this one has 4 tensors, 99 elements");
}

TEST_F(CheckpointManagerTest, TwoJobsDoNotSaveIntoOneDirectory) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> first = CheckpointManager::Open(group.get(), Options());
  ASSERT_THAT(first, IsOk());
  ExpectOnAllRanks(Options(), absl::StatusCode::kFailedPrecondition, absl::StrCat("is in use by another job"));
  ExpectOnAllRanks(Options(), absl::StatusCode::kFailedPrecondition, absl::StrCat("process ", getpid(), " on host "));
  EXPECT_THAT(Save(**first, 1), IsOk());
  first->reset();
  SaveSteps({2});
}

TEST_F(CheckpointManagerTest, ADirectoryThatIsMovedAwayMeanwhileIsNoticedAndANewOneTaken) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Options());
  ASSERT_THAT(manager, IsOk());
  ASSERT_THAT(Save(**manager, 10), IsOk());
  const std::string id((*manager)->run_id());
  std::filesystem::rename(run_, dir_ + "/moved");
  ASSERT_THAT(Save(**manager, 20), IsOk());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("was moved or removed while this job saved there")));
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000020"));
  EXPECT_THAT(NamesIn(dir_ + "/moved"), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000010"));
  EXPECT_THAT(ReadFile(run_ + "/run.json"), HasSubstr(id));
  // It is locked again.
  EXPECT_THAT(CheckpointManager::Open(group.get(), Options()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is in use by another job")));
}

TEST_F(CheckpointManagerTest, AJobWhosePlaceAnotherOneHasTakenSavesNothingThere) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> first = CheckpointManager::Open(group.get(), Options());
  ASSERT_THAT(first, IsOk());
  ASSERT_THAT(Save(**first, 10), IsOk());
  std::filesystem::rename(run_, dir_ + "/moved");
  {
    absl::StatusOr<Manager> second = CheckpointManager::Open(group.get(), Options());
    ASSERT_THAT(second, IsOk());
    ASSERT_THAT(Save(**second, 10), IsOk());
    EXPECT_THAT(Save(**first, 20),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is in use by another job")));
  }
  EXPECT_THAT(Save(**first, 30), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("belongs to the run")));
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000010"));
}

TEST_F(CheckpointManagerTest, OtherRunsCheckpointsAreSkipped) {
  CheckpointManagerOptions mine = Options();
  mine.run_id = "mine";
  SaveSteps({1}, mine);
  CheckpointManagerOptions other = Options();
  other.directory = dir_ + "/other";
  other.run_id = "other";
  SaveSteps({5}, other);
  std::filesystem::copy(dir_ + "/other/step_00000005", run_ + "/step_00000005");
  EXPECT_EQ(Resume().step, 1);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("step_00000005"), HasSubstr("other"), HasSubstr("mine"))));
  SaveSteps({2, 3}, Keeping({.newest = 1}));
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000003", "step_00000005"));
}

// ---- Bad input: nothing is touched ----

TEST_F(CheckpointManagerTest, BadOptionsAreRefused) {
  CheckpointManagerOptions options = Options();
  options.directory = "";
  ExpectOnAllRanks(options, absl::StatusCode::kInvalidArgument, "the checkpoint directory is \"\"");
  options = Options();
  options.timeout = absl::ZeroDuration();
  ExpectOnAllRanks(options, absl::StatusCode::kInvalidArgument, "the save timeout is 0");
  ExpectOnAllRanks(Keeping({.newest = 0}), absl::StatusCode::kInvalidArgument, "0");
  options = Options();
  options.run_id = "two\nlines";
  ExpectOnAllRanks(options, absl::StatusCode::kInvalidArgument, "two\\nlines");
  options = Options();
  options.model = "two\nlines";
  ExpectOnAllRanks(options, absl::StatusCode::kInvalidArgument, "two\\nlines");
  EXPECT_THAT(NamesIn(dir_), IsEmpty());
}

TEST_F(CheckpointManagerTest, AFileIsNoRunDirectory) {
  WriteFile(run_, "a file");
  ExpectOnAllRanks(Options(), absl::StatusCode::kInvalidArgument, "the checkpoint directory");
  EXPECT_EQ(ReadFile(run_), "a file");
}

TEST_F(CheckpointManagerTest, DirectoriesThatDifferAreDifferentOperations) {
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) {
    CheckpointManagerOptions options = Options();
    if (group.rank() == 1) options.directory = dir_ + "/elsewhere";
    return CheckpointManager::Open(&group, options).status();
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kFailedPrecondition)));
}

TEST_F(CheckpointManagerTest, BadRequestsAreRefused) {
  const auto save = [](CheckpointRequest request, std::vector<std::string_view> names) {
    return [=](CheckpointManager& manager) {
      const auto write = [](WritableFile& file) { return file.Append("x"); };
      std::vector<CheckpointPayload> payloads;
      for (const std::string_view name : names) payloads.push_back({name, write});
      return manager.Save(request, payloads).status();
    };
  };
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectOnAllRanks(Options(), code, "step -1: must be at least 0", save({.step = -1}, {"a"}));
  ExpectOnAllRanks(Options(), code, "a checkpoint needs a file", save({.step = 1}, {}));
  ExpectOnAllRanks(Options(), code, "two files of a checkpoint are named \"a\"", save({.step = 1}, {"a", "a"}));
  for (const std::string_view name : {"", "a/b", "..", ".hidden", "manifest.json", "pinned", "two\nlines"}) {
    ExpectOnAllRanks(Options(), code, "", save({.step = 1}, {name}));
  }
  ExpectOnAllRanks(Options(), code, "two\\nlines", save({.step = 1, .metrics = {{"two\nlines", 1}}}, {"a"}));
  ExpectOnAllRanks(Keeping({.newest = 1, .best = {{.metric = "loss"}}}), code,
                   "best by \"loss\" are to be kept, and this one has no such metric; it has \"r2\"",
                   save({.step = 1, .metrics = {{"r2", 1}}}, {"a"}));
  EXPECT_THAT(Names(), IsEmpty());
}

// The number that orders checkpoints can be at its end, if somebody has made it so.
TEST_F(CheckpointManagerTest, WhatCouldNotBeReadBackIsNotCommittedAndTakesNothingAway) {
  std::filesystem::create_directory(run_);
  testing::WriteCheckpoint(
      run_, {.step = 10, .sequence = std::numeric_limits<int64_t>::max() - 1, .run_id = "mine", .world_size = 1},
      {{"state.pt", "state of step 10"}});
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> manager = CheckpointManager::Open(group.get(), Keeping({.newest = 1}));
  ASSERT_THAT(manager, IsOk());
  EXPECT_THAT(Save(**manager, 20), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("has the sequence")));
  EXPECT_THAT(Names(), Contains("step_00000010"));
  EXPECT_THAT(Names(), Not(Contains("step_00000020")));
}

TEST_F(CheckpointManagerTest, AManifestThatNobodyWouldReadIsNotWritten) {
  std::map<std::string, double> metrics;
  for (int i = 0; i < 10'000; ++i) metrics[absl::StrCat(std::string(100, 'm'), i)] = i;
  ExpectOnAllRanks(Options(), absl::StatusCode::kInvalidArgument, "10000 metrics",
                   [&](CheckpointManager& manager) { return Save(manager, 1, metrics).status(); });
  EXPECT_THAT(Names(), ElementsAre("run.json"));
}

TEST_F(CheckpointManagerTest, NotANumberIsAMetricAndTheWorstOne) {
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<Manager> manager =
      CheckpointManager::Open(group.get(), Keeping({.newest = 1, .best = {{.metric = "loss"}}}));
  ASSERT_THAT(manager, IsOk());
  EXPECT_THAT(Save(**manager, 1, {{"loss", 5}}), IsOk());
  EXPECT_THAT(Save(**manager, 2, {{"loss", std::numeric_limits<double>::quiet_NaN()}}), IsOk());
  EXPECT_THAT(Save(**manager, 3, {{"loss", std::numeric_limits<double>::infinity()}}), IsOk());
  EXPECT_THAT((*manager)->WaitForRemovals(), IsOk());
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000001", "step_00000003"));
}

TEST_F(CheckpointManagerTest, AManifestOfALaterVersionIsSkippedAndARunFileOfOneRefused) {
  SaveSteps({1, 2});
  std::string manifest = ReadFile(run_ + "/step_00000002/manifest.json");
  manifest.replace(manifest.find("\"version\": 1"), 12, "\"version\": 2");
  WriteFile(run_ + "/step_00000002/manifest.json", manifest);
  EXPECT_EQ(Resume().step, 1);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("version 2")));
  std::string run = ReadFile(run_ + "/run.json");
  run.replace(run.find("\"version\": 1"), 12, "\"version\": 2");
  WriteFile(run_ + "/run.json", run);
  ExpectOnAllRanks(Options(), absl::StatusCode::kInvalidArgument, "version 2");
}

// ---- "latest" ----

TEST_F(CheckpointManagerTest, ALatestThatLeadsNowhereIsMended) {
  for (const std::string target : {"step_00000099", "latest"}) {
    std::filesystem::create_directories(run_);
    std::filesystem::remove(run_ + "/latest");
    std::filesystem::create_symlink(target, run_ + "/latest");
    SaveSteps({1});
    EXPECT_EQ(ReadFile(run_ + "/latest/state.pt"), "state of step 1");
  }
}

TEST_F(CheckpointManagerTest, ALatestThatIsNoLinkIsLeftAlone) {
  std::filesystem::create_directories(run_);
  WriteFile(run_ + "/latest", "mine");
  ExpectOnAllRanks(Options(), absl::StatusCode::kFailedPrecondition, "/latest\" is a file; it must be a symlink");
  EXPECT_EQ(ReadFile(run_ + "/latest"), "mine");
  std::filesystem::remove(run_ + "/latest");
  std::filesystem::create_directory(run_ + "/latest");
  ExpectOnAllRanks(Options(), absl::StatusCode::kFailedPrecondition, "/latest\" is a directory");
  std::filesystem::remove(run_ + "/latest");
  // Also if it comes to be one later.
  ExpectOnAllRanks(Options(), absl::StatusCode::kFailedPrecondition, "is a file", [&](CheckpointManager& manager) {
    WriteFile(run_ + "/latest", "mine");
    return Save(manager, 1).status();
  });
  EXPECT_THAT(Names(), ElementsAre("latest"));
}

TEST_F(CheckpointManagerTest, TheWholeDirectoryMayBeMoved) {
  SaveSteps({1});
  std::filesystem::rename(run_, dir_ + "/moved");
  EXPECT_EQ(ReadFile(dir_ + "/moved/latest/state.pt"), "state of step 1");
}

// ---- Reports ----

TEST_F(CheckpointManagerTest, EverySaveIsALineOfJsonIfAskedFor) {
  CheckpointManagerOptions options = Options();
  options.report_path = dir_ + "/saves.jsonl";
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, options));
    EXPECT_THAT(Save(*manager, 1), IsOk());
    EXPECT_THAT(Save(*manager, 1), Not(IsOk()));
    return absl::OkStatus();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  std::ifstream lines(options.report_path);
  std::string first, second, third;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, third));
  EXPECT_THAT(first, AllOf(HasSubstr("\"step\":1,\"saved\":true,\"path\":\"" + run_ + "/step_00000001\",\"bytes\":15,"),
                           HasSubstr("\"blocked_seconds\":"), HasSubstr("\"failed_saves\":0}")));
  EXPECT_THAT(second, AllOf(HasSubstr("\"step\":1,\"saved\":false,\"error\":"), HasSubstr("\"failed_saves\":1}")));
}

TEST_F(CheckpointManagerTest, AReportNamesWhatIsNoLongerKeptOnEveryRank) {
  CheckpointManagerOptions options = Keeping({.newest = 2});
  options.report_path = dir_ + "/saves.jsonl";
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const Manager manager, CheckpointManager::Open(&group, options));
    for (const int64_t step : {1, 2, 3}) {
      ABSL_ASSIGN_OR_RETURN(const CheckpointReport report, Save(*manager, step));
      if (step < 3) {
        EXPECT_THAT(report.retired, IsEmpty());
      } else {
        EXPECT_THAT(report.retired, ElementsAre("step_00000001"));
      }
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_THAT(ReadFile(options.report_path), HasSubstr("\"retired\":[\"step_00000001\"],"));
}

TEST_F(CheckpointManagerTest, AReportIsNotWrittenIntoTheRunsOwnFiles) {
  SaveSteps({1});
  const std::string run_file = ReadFile(run_ + "/run.json");
  std::filesystem::create_symlink(run_ + "/run.json", dir_ + "/link");
  const std::vector<std::string> names = {run_ + "/run.json",
                                          run_ + "/.cohort-lock",
                                          run_ + "/step_00000001/manifest.json",
                                          run_ + "/latest/state.pt",
                                          run_ + "/../run/./run.json",
                                          dir_ + "/link"};
  for (const std::string& name : names) {
    CheckpointManagerOptions options = Options();
    options.report_path = name;
    ExpectOnAllRanks(options, absl::StatusCode::kInvalidArgument, "the report of saves \"");
  }
  EXPECT_EQ(ReadFile(run_ + "/run.json"), run_file);
  CheckpointManagerOptions fresh = Options();
  fresh.directory = dir_ + "/fresh";
  fresh.report_path = dir_ + "/fresh/latest";
  ExpectOnAllRanks(fresh, absl::StatusCode::kInvalidArgument, "is a name of the run itself");
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/fresh"));
  CheckpointManagerOptions options = Options();
  options.report_path = run_ + "/saves.jsonl";  // beside them it may be
  SaveSteps({2}, options);
  EXPECT_THAT(ReadFile(options.report_path), HasSubstr("\"step\":2"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(CheckpointManagerTest, AReportIsNotAppendedToAnotherFile) {
  CheckpointManagerOptions options = Options();
  options.report_path = dir_ + "/data.csv";
  std::ofstream(options.report_path) << "a,b\n1,2\n";
  ExpectOnAllRanks(options, absl::StatusCode::kInvalidArgument, "data.csv\" begins with \"a,b");
  EXPECT_EQ(ReadFile(options.report_path), "a,b\n1,2\n");
  EXPECT_FALSE(std::filesystem::exists(run_));
}

TEST_F(CheckpointManagerTest, AReportThatCannotBeWrittenIsAWarning) {
  CheckpointManagerOptions options = Options();
  options.report_path = dir_ + "/none/saves.jsonl";
  SaveSteps({1}, options);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the report of a save is lost")));
}

}  // namespace
}  // namespace cohort
