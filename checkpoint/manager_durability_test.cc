// CheckpointManager at every crash point (EnumerateCrashes), on every disk that a loss of power may leave: RunLedger says
// which rules hold. The detector is shown savers that are wrong on purpose, and must find each.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cohort/checkpoint/atomic_file.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/directories.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/internal/temporary_name.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/checkpoint/testing/crash_file_system.h"
#include "cohort/checkpoint/testing/crash_points.h"
#include "cohort/checkpoint/testing/manager_save.h"
#include "cohort/checkpoint/testing/run_ledger.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::cohort::testing::CrashFileSystem;
using ::cohort::testing::CrashSubject;
using ::cohort::testing::CrashTally;
using ::cohort::testing::EnumerateCrashes;
using ::cohort::testing::ManagerSave;
using ::cohort::testing::OpenAndSave;
using ::cohort::testing::OpenManager;
using ::cohort::testing::RunLedger;
using ::cohort::testing::RunRanks;
using ::cohort::testing::Save;
using ::cohort::testing::TestPayload;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Violations = CrashSubject::Violations;

using Saver = std::function<absl::Status(CrashFileSystem& disk, const ManagerSave& request)>;

// ---- Savers ----

absl::Status SaveOnOneRank(CrashFileSystem& disk, const ManagerSave& request) {
  return OpenAndSave(*ProcessGroup::WorldOfOne(), disk, request);
}

absl::Status SaveOnTwoRanks(CrashFileSystem& disk, const ManagerSave& request) {
  const std::vector<absl::Status> ended =
      RunRanks(2, [&](ProcessGroup& group) { return OpenAndSave(group, disk, request); });
  ABSL_CHECK(ended[0] == ended[1]) << ended[0] << " on rank 0, " << ended[1] << " on rank 1";
  return ended[0];
}

// A manager as people write it, with parts to leave out.
struct Faulty {
  bool sync_files = true;
  bool sync_step_directory = true;
  bool sync_before_latest = true;
  bool sync_after_latest = true;
  bool sync_before_removing = true;
  bool rename_latest = true;
  bool retire_last = true;
  bool in_place = false;

  absl::Status operator()(CrashFileSystem& disk, const ManagerSave& request) const {
    const std::string& run = request.directory;
    ABSL_RETURN_IF_ERROR(internal::MakeDirectories(disk, run));
    ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<FileLock> lock, disk.Lock(run + "/.cohort-lock", "Faulty"));
    if (!disk.Inspect(run + "/run.json").ok()) {
      ABSL_RETURN_IF_ERROR(
          WriteFile(disk, run + "/run.json", internal::EncodeRunFile({.run_id = "run", .created = absl::Now()})));
    }
    ABSL_ASSIGN_OR_RETURN(const RunDirectory before, ReadRunDirectory(disk, run));
    const std::string contents = TestPayload(request.step, request.save);
    const CheckpointInfo info = Describe(request, contents, before);
    std::vector<CheckpointInfo> all = before.checkpoints;
    all.push_back(info);
    if (!retire_last) {
      ABSL_RETURN_IF_ERROR(Retire(disk, run, all, request.policy));
    }
    ABSL_RETURN_IF_ERROR(Commit(disk, info, contents));
    ABSL_RETURN_IF_ERROR(MoveLatest(disk, run, info.path.substr(run.size() + 1)));
    return retire_last ? Retire(disk, run, all, request.policy) : absl::OkStatus();
  }

 private:
  static absl::Status WriteFile(CrashFileSystem& disk, const std::string& path, std::string_view contents) {
    ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(disk, path));
    ABSL_RETURN_IF_ERROR(file->Append(contents));
    ABSL_RETURN_IF_ERROR(file->Sync());
    return file->Publish();
  }

  static CheckpointInfo Describe(const ManagerSave& request, std::string_view contents, const RunDirectory& before) {
    return {.path = absl::StrCat(request.directory, "/", internal::CheckpointName(request.step, 1)),
            .step = request.step,
            .sequence = before.checkpoints.empty() ? 1 : before.checkpoints.front().sequence + 1,
            .saved = absl::Now(),
            .run_id = "run",
            .world_size = 1,
            .metrics = {{"loss", request.loss}},
            .files = {{.name = "state.pt",
                       .num_bytes = static_cast<int64_t>(contents.size()),
                       .crc32 = internal::Crc32(contents)}}};
  }

  absl::Status Commit(CrashFileSystem& disk, const CheckpointInfo& info, std::string_view contents) const {
    const std::string run(internal::DirectoryOf(info.path));
    const std::string written = in_place ? info.path : absl::StrCat(run, "/", internal::TemporaryName("step"));
    ABSL_RETURN_IF_ERROR(disk.MakeDirectory(written));
    const std::string manifest = internal::EncodeManifest(info);
    const std::pair<std::string_view, std::string_view> files[] = {{"state.pt", contents}, {"manifest.json", manifest}};
    for (const auto& [name, bytes] : files) {
      ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<OutputFile> file,
                            disk.Create(absl::StrCat(written, "/", name), std::nullopt));
      ABSL_RETURN_IF_ERROR(file->Append(bytes));
      if (sync_files) {
        ABSL_RETURN_IF_ERROR(file->Sync());
      }
    }
    if (sync_step_directory) {
      ABSL_RETURN_IF_ERROR(disk.SyncDirectory(written));
    }
    if (!in_place) {
      ABSL_RETURN_IF_ERROR(disk.Rename(written, info.path));
    }
    return sync_before_latest ? internal::SyncUpwards(disk, run) : absl::OkStatus();
  }

  absl::Status MoveLatest(CrashFileSystem& disk, const std::string& run, const std::string& name) const {
    const std::string latest = run + "/latest";
    if (rename_latest) {
      const std::string next = absl::StrCat(run, "/", internal::TemporaryName("latest"));
      ABSL_RETURN_IF_ERROR(disk.MakeSymlink(name, next));
      ABSL_RETURN_IF_ERROR(disk.Rename(next, latest));
    } else {
      (void)disk.Remove(latest);
      ABSL_RETURN_IF_ERROR(disk.MakeSymlink(name, latest));
    }
    return sync_after_latest ? disk.SyncDirectory(run) : absl::OkStatus();
  }

  absl::Status Retire(CrashFileSystem& disk, const std::string& run, const std::vector<CheckpointInfo>& all,
                      const RetentionPolicy& policy) const {
    for (const size_t i : PlanRetention(all, policy)) {
      const std::string hidden = absl::StrCat(run, "/", internal::TemporaryName("removed"));
      ABSL_RETURN_IF_ERROR(disk.Rename(all[i].path, hidden));
      if (sync_before_removing) {
        ABSL_RETURN_IF_ERROR(disk.SyncDirectory(run));
      }
      ABSL_RETURN_IF_ERROR(disk.Remove(hidden + "/state.pt"));
      ABSL_RETURN_IF_ERROR(disk.Remove(hidden + "/manifest.json"));
      ABSL_RETURN_IF_ERROR(disk.RemoveDirectory(hidden));
    }
    return absl::OkStatus();
  }
};

// ---- Scenarios ----

// What is on the disk before the save under test.
struct Scenario {
  std::string_view name;
  std::string directory = "/run";
  RetentionPolicy policy;
  bool pin = false;
  // Gets the disk and a request for a first save into it.
  std::function<void(CrashFileSystem& disk, ManagerSave request)> prepare = [](CrashFileSystem&, ManagerSave) {};
};

void Sync(CrashFileSystem& disk, const std::string& directory) {
  ABSL_CHECK_OK(internal::SyncUpwards(disk, directory));
}

// Saves of steps 1, 2, ..., with these losses, all kept.
void Put(CrashFileSystem& disk, ManagerSave request, const std::vector<double>& losses, int64_t pinned_step = 0) {
  request.policy = {};
  for (const double loss : losses) {
    ++request.step;
    ++request.save;
    request.loss = loss;
    request.pin = request.step == pinned_step;
    ABSL_CHECK_OK(SaveOnOneRank(disk, request));
  }
  // Of the lock's file only the name is new.
  Sync(disk, request.directory);
}

void PutLatest(CrashFileSystem& disk, const std::string& directory, std::string_view target) {
  ABSL_CHECK_OK(disk.Remove(directory + "/latest"));
  ABSL_CHECK_OK(disk.MakeSymlink(target, directory + "/latest"));
  Sync(disk, directory);
}

// What a job that was killed in mid-save left, and somebody else's directory.
void PutUnfinished(CrashFileSystem& disk, const std::string& directory) {
  const std::string path = absl::StrCat(directory, "/", internal::TemporaryName("step"));
  ABSL_CHECK_OK(disk.MakeDirectory(path));
  absl::StatusOr<std::unique_ptr<OutputFile>> file = disk.Create(path + "/state.pt", std::nullopt);
  ABSL_CHECK_OK(file.status());
  ABSL_CHECK_OK((*file)->Append("half a file"));
  ABSL_CHECK_OK((*file)->Sync());
  ABSL_CHECK_OK(disk.MakeDirectory(directory + "/notes"));
  Sync(disk, path);
}

// What a job that was killed before it could move "latest" left.
void PutUnusedLink(CrashFileSystem& disk, const std::string& directory) {
  ABSL_CHECK_OK(disk.MakeSymlink("step_00000007", absl::StrCat(directory, "/", internal::TemporaryName("latest"))));
  Sync(disk, directory);
}

std::vector<Scenario> Scenarios() {
  const RetentionPolicy two_and_best = {.newest = 2, .best = {{.metric = "loss"}}};
  return {
      {.name = "first save, directories are missing", .directory = "/runs/a"},
      {.name = "first save, into directories that a killed process had only just made",
       .directory = "/runs/a",
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave&) {
             ABSL_CHECK_OK(disk.MakeDirectory("/runs"));
             ABSL_CHECK_OK(disk.MakeDirectory("/runs/a"));
           }},
      {.name = "second save",
       .prepare = [](CrashFileSystem& disk, const ManagerSave& first) { Put(disk, first, {1}); }},
      {.name = "only the newest is kept",
       .policy = {.newest = 1},
       .prepare = [](CrashFileSystem& disk, const ManagerSave& first) { Put(disk, first, {1}); }},
      {.name = "only the newest is kept of several",
       .policy = {.newest = 1},
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave& first) {
             Put(disk, first, {1, 1, 1});
           }},
      {.name = "the two newest, the best and a pinned one are kept of five",
       .policy = two_and_best,
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave& first) {
             Put(disk, first, {0.1, 0.9, 0.8, 0.7, 0.6}, /*pinned_step=*/2);
           }},
      {.name = "one that is pinned",
       .policy = {.newest = 1},
       .pin = true,
       .prepare = [](CrashFileSystem& disk, const ManagerSave& first) { Put(disk, first, {1}); }},
      {.name = "a killed job left a checkpoint unfinished",
       .policy = {.newest = 1},
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave& first) {
             Put(disk, first, {1});
             PutUnfinished(disk, first.directory);
           }},
      {.name = "a killed job left a link",
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave& first) {
             Put(disk, first, {1});
             PutUnusedLink(disk, first.directory);
           }},
      {.name = "latest leads nowhere",
       .policy = {.newest = 1},
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave& first) {
             Put(disk, first, {1});
             PutLatest(disk, first.directory, "step_00000099");
           }},
      {.name = "latest leads to itself",
       .prepare =
           [](CrashFileSystem& disk, const ManagerSave& first) {
             Put(disk, first, {1});
             PutLatest(disk, first.directory, "latest");
           }},
  };
}

// ---- The detector ----

class SaverSubject final : public CrashSubject {
 public:
  SaverSubject(const Scenario& scenario, const Saver& save)
      : save_(save),
        prepare_(scenario.prepare),
        request_{.directory = scenario.directory, .policy = scenario.policy, .pin = scenario.pin} {}

  void ForEachDisk(WithDisk with) override {
    CrashFileSystem disk;
    prepare_(disk, {.directory = request_.directory, .policy = request_.policy});
    with(disk);
  }

  void Begin(CrashFileSystem& disk) override {
    ledger_.emplace(disk, request_.directory, request_.policy);
    request_ = After(*ledger_);
  }

  absl::Status Act(CrashFileSystem& disk) override { return save_(disk, request_); }

  Violations CheckRunning(CrashFileSystem& disk, bool saved) override {
    return ledger_->Check(disk, request_.step, request_.save, saved);
  }

  Violations CheckRebooted(CrashFileSystem& disk, bool saved) override {
    Violations violations = ledger_->Check(disk, request_.step, request_.save, saved);
    const std::string path = absl::StrCat(request_.directory, "/", internal::CheckpointName(request_.step, 1));
    if (request_.pin && disk.Inspect(path).ok() && !disk.Inspect(path + "/pinned").ok()) {
      violations.push_back("I4: it is no longer pinned");
    }
    return violations.empty() ? CheckNextSave(disk) : violations;
  }

 private:
  ManagerSave After(const RunLedger& ledger) {
    ManagerSave request = request_;
    request.step = ledger.last_step() + 1;
    request.save = ++num_saves_;
    request.loss = 0.5;
    return request;
  }

  // I5
  Violations CheckNextSave(CrashFileSystem& disk) {
    const RunLedger ledger(disk, request_.directory, request_.policy);
    const ManagerSave next = After(ledger);
    if (absl::Status saved = SaveOnOneRank(disk, next); !saved.ok()) {
      return {absl::StrCat("I5: the next save fails: ", saved.ToString())};
    }
    return ledger.CheckTidy(disk, next.step, next.save);
  }

  const Saver& save_;
  const std::function<void(CrashFileSystem&, ManagerSave)> prepare_;
  ManagerSave request_;
  int64_t num_saves_ = 1'000;
  std::optional<RunLedger> ledger_;
};

// In all scenarios, or in those that are named.
CrashTally Enumerate(const Saver& save, const std::vector<std::string_view>& names = {}) {
  CrashTally all;
  for (const Scenario& scenario : Scenarios()) {
    if (!names.empty() && std::find(names.begin(), names.end(), scenario.name) == names.end()) continue;
    SaverSubject subject(scenario, save);
    CrashTally tally = EnumerateCrashes(scenario.name, subject);
    std::cout << scenario.name << ": " << tally.crash_points << " crash points, " << tally.states << " states"
              << std::endl;
    all += std::move(tally);
  }
  return all;
}

// What is found of a saver that is wrong.
Violations Check(const Faulty& save) { return Enumerate(save, {"second save", "only the newest is kept"}).violations; }

void ExpectSafe(const Saver& save) {
  const CrashTally tally = Enumerate(save);
  EXPECT_THAT(tally.violations, IsEmpty());
  std::cout << "in all: " << tally.crash_points << " crash points, " << tally.states << " states" << std::endl;
  ::testing::Test::RecordProperty("crash_points", static_cast<int>(tally.crash_points));
  ::testing::Test::RecordProperty("states", static_cast<int>(tally.states));
  // Should the enumeration ever enumerate nothing.
  EXPECT_GE(tally.crash_points, 500);
  EXPECT_GE(tally.states, 5'000);
}

// ---- Tests ----

TEST(ManagerDurabilityTest, NothingIsLostAtAnyCrashPointOnOneRank) { ExpectSafe(SaveOnOneRank); }

TEST(ManagerDurabilityTest, NothingIsLostAtAnyCrashPointOnTwoRanks) { ExpectSafe(SaveOnTwoRanks); }

TEST(ManagerDurabilityTest, TheDetectorAcceptsAPlainManagerThatIsRight) { EXPECT_THAT(Check(Faulty{}), IsEmpty()); }

TEST(ManagerDurabilityTest, TheDetectorFindsFilesThatWereNotSyncedBeforeTheCommit) {
  EXPECT_THAT(Check(Faulty{.sync_files = false}), Contains(HasSubstr("[second save] I1: step_00000002 is skipped")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsAStepDirectoryThatWasNotSyncedBeforeItGotItsName) {
  EXPECT_THAT(Check(Faulty{.sync_step_directory = false}),
              Contains(HasSubstr("[second save] I1: step_00000002 is skipped")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsACheckpointThatIsWrittenInPlace) {
  EXPECT_THAT(Check(Faulty{.in_place = true}), Contains(HasSubstr("[second save] I1: step_00000002 is skipped")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsThatLatestWasMovedBeforeItsCheckpointWasDurable) {
  EXPECT_THAT(Check(Faulty{.sync_before_latest = false}),
              Contains(HasSubstr("I3: \"latest\" leads to step_00000002, which is no checkpoint")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsThatLatestWasNotDurableBeforeTheOldOneWent) {
  EXPECT_THAT(Check(Faulty{.sync_after_latest = false}),
              Contains(HasSubstr("[only the newest is kept] I3: \"latest\" leads to step_00000001")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsALatestThatIsRemovedAndMadeAgain) {
  EXPECT_THAT(Check(Faulty{.rename_latest = false}), Contains(HasSubstr("I3: \"latest\" is gone")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsARetentionBeforeTheCommit) {
  EXPECT_THAT(Check(Faulty{.retire_last = false}),
              Contains(HasSubstr("[only the newest is kept] I4: step_00000001 is gone")));
}

TEST(ManagerDurabilityTest, TheDetectorFindsARemovalThatIsSeenHalfDone) {
  EXPECT_THAT(Check(Faulty{.sync_before_removing = false}),
              Contains(HasSubstr("[only the newest is kept] I1: step_00000001 is skipped")));
}

// How the `n`-th operation of a save fails.
using Disturbance = std::function<void(CrashFileSystem& disk, int64_t n)>;

// Saves with a manager that lives on and saves again. Returns whether the first save came so far that it was disturbed.
bool DisturbAndSaveAgain(const Scenario& scenario, int64_t n, const Disturbance& disturbance) {
  CrashFileSystem disk;
  ManagerSave save{.directory = scenario.directory, .policy = scenario.policy, .pin = scenario.pin};
  scenario.prepare(disk, save);
  const auto group = ProcessGroup::WorldOfOne();
  absl::StatusOr<std::unique_ptr<CheckpointManager>> manager = OpenManager(*group, disk, save);
  ABSL_CHECK_OK(manager.status());
  const auto save_next = [&](int64_t step) {
    save.step = save.save = step;
    const RunLedger ledger(disk, scenario.directory, scenario.policy);
    const absl::Status saved = Save(**manager, save).status();
    ABSL_CHECK_OK((*manager)->WaitForRemovals());
    EXPECT_THAT(ledger.Check(disk, step, step, saved.ok()), IsEmpty()) << disk.Log();
    disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view kept) {
      EXPECT_THAT(ledger.Check(rebooted, step, step, saved.ok()), IsEmpty()) << disk.Log() << "\nkept: " << kept;
    });
    return saved;
  };
  disturbance(disk, disk.num_operations() + n);
  const int64_t disturbed = disk.num_operations() + n;
  const bool failed = !save_next(100).ok();
  EXPECT_EQ((*manager)->num_failed_saves(), failed ? 1 : 0);
  if (disk.num_operations() < disturbed) return false;
  disk.Repair();
  EXPECT_THAT(save_next(101), IsOk()) << disk.Log();
  return true;
}

// Returns how many operations were disturbed.
int DisturbEveryOperation(const Disturbance& disturbance) {
  int number = 0;
  for (const Scenario& scenario : Scenarios()) {
    SCOPED_TRACE(scenario.name);
    for (int64_t n = 1; DisturbAndSaveAgain(scenario, n, disturbance); ++n) {
      ++number;
      if (::testing::Test::HasFailure()) return number;
    }
  }
  return number;
}

TEST(ManagerDurabilityTest, AManagerGoesOnAfterEachErrorOfTheDisk) {
  for (const absl::Status& error :
       {absl::ResourceExhaustedError("No space left on device"), absl::UnavailableError("Input/output error")}) {
    const int errors = DisturbEveryOperation([&](CrashFileSystem& disk, int64_t n) { disk.FailAt(n, error); });
    std::cout << errors << " errors" << std::endl;
    EXPECT_GE(errors, 200);
  }
}

TEST(ManagerDurabilityTest, AManagerGoesOnAfterADiskThatWasAwayFromEachOperationOn) {
  const absl::Status error = absl::UnavailableError("Input/output error");
  const int errors = DisturbEveryOperation([&](CrashFileSystem& disk, int64_t n) { disk.FailFrom(n, error); });
  std::cout << errors << " errors" << std::endl;
  EXPECT_GE(errors, 200);
}

}  // namespace
}  // namespace cohort
