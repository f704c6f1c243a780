// CheckpointManager on a real disk, in one process: killed at every system call of a save and at every byte that it
// writes; a disk that is full at every byte, and one on which every call fails. RunLedger says what must be true after
// each. In the middle of all this there is never less to go on from.

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/manager_save.h"
#include "cohort/checkpoint/testing/run_ledger.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/faults/disk_shim.h"
#include "cohort/tests/faults/small_disk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::DiskCall;
using ::cohort::testing::DiskShim;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::FreshDirectoryInMemory;
using ::cohort::testing::ManagerSave;
using ::cohort::testing::MountSmallDisk;
using ::cohort::testing::NamesIn;
using ::cohort::testing::OpenAndSave;
using ::cohort::testing::OpenManager;
using ::cohort::testing::RunLedger;
using ::cohort::testing::Save;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

FileSystem& Disk() { return *FileSystem::Posix(); }

absl::Status SaveInThisProcess(const ManagerSave& save) {
  return OpenAndSave(*ProcessGroup::WorldOfOne(), Disk(), save);
}

// The save that comes after what `ledger` has seen.
ManagerSave After(const RunLedger& ledger, ManagerSave save) {
  save.step = ledger.last_step() + 1;
  ++save.save;
  return save;
}

// A good save into the directory of `save`, which leaves nothing else there.
void ExpectNextSaveIsGood(ManagerSave& save) {
  const RunLedger ledger(Disk(), save.directory, save.policy);
  save = After(ledger, save);
  ASSERT_THAT(SaveInThisProcess(save), IsOk());
  EXPECT_THAT(ledger.CheckTidy(Disk(), save.step, save.save), IsEmpty());
}

// How a child ended.
enum class End { kSaved, kKilled, kFailed };

// Does `act` in a child, where `disturb` has told the shim what to do.
End InChild(const std::string& directory, const std::function<void(DiskShim&)>& disturb,
            const std::function<absl::Status()>& act) {
  const pid_t child = fork();
  if (child == 0) {
    DiskShim shim(directory);
    disturb(shim);
    _exit(act().ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return End::kKilled;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? End::kSaved : End::kFailed;
}

// ---- Killed ----

using Saver = std::function<absl::Status(const ManagerSave&)>;

struct Kills {
  int number = 0;
  RunLedger::Violations violations;
};

// Makes `num_before` checkpoints in a new directory. Their steps are those before `save`'s.
void Prepare(ManagerSave& save, int num_before) {
  const RetentionPolicy policy = std::exchange(save.policy, {});
  save.directory = FreshDirectoryInMemory() + "/run";
  for (int i = 0; i < num_before; ++i) {
    ++save.step;
    ++save.save;
    ASSERT_THAT(SaveInThisProcess(save), IsOk());
  }
  save.policy = policy;
}

// Saves again and again, each time into a directory of `num_before` checkpoints, in children that are killed: the n-th as
// `disturb` says. Ends when one is not.
Kills KillAgainAndAgain(const Saver& saver, ManagerSave save, size_t num_before,
                        const std::function<void(DiskShim&, int n)>& disturb) {
  Kills kills;
  for (int n = 1;; ++n) {
    if (n == 1 || RunLedger(Disk(), save.directory, save.policy).size() != num_before) {
      Prepare(save, static_cast<int>(num_before));
    }
    const RunLedger ledger(Disk(), save.directory, save.policy);
    save = After(ledger, save);
    const std::string above = save.directory.substr(0, save.directory.rfind('/'));
    const End end = InChild(
        above, [&](DiskShim& shim) { disturb(shim, n); }, [&] { return saver(save); });
    EXPECT_NE(end, End::kFailed);
    for (const std::string& wrong : ledger.Check(Disk(), save.step, save.save, end == End::kSaved)) {
      kills.violations.push_back(absl::StrCat("kill ", n, ": ", wrong));
    }
    if (end != End::kKilled || !kills.violations.empty()) return kills;
    ++kills.number;
    ExpectNextSaveIsGood(save);
    if (::testing::Test::HasFailure()) return kills;
  }
}

void KillAtCall(DiskShim& shim, int n) {
  shim.Before("", n, [](const DiskCall&) { return raise(SIGKILL); });
}

void KillAfterBytes(DiskShim& shim, int64_t num_bytes) {
  shim.LimitBytes(num_bytes, [] { return raise(SIGKILL); });
}

TEST(KilledManagerTest, AtEveryCallOfAFirstSave) {
  const Kills kills = KillAgainAndAgain(SaveInThisProcess, {}, 0, KillAtCall);
  EXPECT_THAT(kills.violations, IsEmpty());
  std::cout << kills.number << " kills" << std::endl;
  EXPECT_GE(kills.number, 30);
}

TEST(KilledManagerTest, AtEveryCallOfASecondSave) {
  const Kills kills = KillAgainAndAgain(SaveInThisProcess, {.num_bytes = 200'000}, 1, KillAtCall);
  EXPECT_THAT(kills.violations, IsEmpty());
  std::cout << kills.number << " kills" << std::endl;
  EXPECT_GE(kills.number, 20);
}

TEST(KilledManagerTest, AtEveryCallOfASaveThatRemovesOthers) {
  const Kills kills = KillAgainAndAgain(SaveInThisProcess, {.policy = {.newest = 1}}, 2, KillAtCall);
  EXPECT_THAT(kills.violations, IsEmpty());
  std::cout << kills.number << " kills" << std::endl;
  EXPECT_GE(kills.number, 30);
}

TEST(KilledManagerTest, AtEveryByteThatASaveWrites) {
  const Kills kills = KillAgainAndAgain(SaveInThisProcess, {.policy = {.newest = 1}}, 1, KillAfterBytes);
  EXPECT_THAT(kills.violations, IsEmpty());
  std::cout << kills.number << " kills" << std::endl;
  EXPECT_GE(kills.number, 300);
}

TEST(KilledManagerTest, TheDetectorFindsASaverThatRemovesTheOldCheckpointFirst) {
  const Saver faulty = [](const ManagerSave& save) -> absl::Status {
    const std::string old = absl::StrFormat("%s/step_%08d", save.directory, save.step - 1);
    ABSL_RETURN_IF_ERROR(Disk().Remove(old + "/manifest.json"));
    ABSL_RETURN_IF_ERROR(Disk().Remove(old + "/state.pt"));
    ABSL_RETURN_IF_ERROR(Disk().RemoveDirectory(old));
    return SaveInThisProcess(save);
  };
  EXPECT_THAT(KillAgainAndAgain(faulty, {.policy = {.newest = 1}}, 1, KillAtCall).violations,
              Contains(AnyOf(HasSubstr("I1"), HasSubstr("I4"))));
}

// ---- A disk that is full, or fails ----

class BadDiskTest : public ::testing::Test {
 protected:
  // A manager at `dir_` whose policy keeps the newest, and one checkpoint.
  void SetUp() override {
    group_ = ProcessGroup::WorldOfOne();
    auto manager = OpenManager(*group_, Disk(), save_);
    ASSERT_THAT(manager, IsOk());
    manager_ = *std::move(manager);
    SaveWell();
  }

  // Saves while `disturb` has told the shim what to do. The rules hold, whatever it says.
  absl::Status SaveBadly(const std::function<void(DiskShim&)>& disturb, std::vector<std::string>* calls = nullptr) {
    const RunLedger ledger(Disk(), dir_, save_.policy);
    save_ = After(ledger, save_);
    absl::Status saved;
    {
      DiskShim shim(dir_);
      disturb(shim);
      saved = Save(*manager_, save_).status();
      EXPECT_THAT(manager_->WaitForRemovals(), IsOk());
      if (calls != nullptr) *calls = shim.Names();
    }
    EXPECT_THAT(ledger.Check(Disk(), save_.step, save_.save, saved.ok()), IsEmpty());
    return saved;
  }

  // The same manager goes on.
  void SaveWell() {
    const RunLedger ledger(Disk(), dir_, save_.policy);
    save_ = After(ledger, save_);
    ASSERT_THAT(Save(*manager_, save_), IsOk());
    ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
    EXPECT_THAT(ledger.Check(Disk(), save_.step, save_.save, true), IsEmpty());
  }

  // A failed save left nothing.
  void ExpectNoLitter() {
    EXPECT_THAT(NamesIn(dir_), Each(AnyOf(".cohort-lock", "latest", "run.json", StartsWith("step_"))));
  }

  const std::string dir_ = FreshDirectoryInMemory();
  ManagerSave save_ = {.directory = dir_, .policy = {.newest = 1}};
  std::unique_ptr<ProcessGroup> group_;
  std::unique_ptr<CheckpointManager> manager_;
};

TEST_F(BadDiskTest, FullAtEveryByte) {
  int num_full = 0;
  for (int64_t room = 0;; ++room) {
    const absl::Status saved = SaveBadly([&](DiskShim& shim) { shim.LimitBytes(room); });
    if (HasFailure()) FAIL() << "with room for " << room << " bytes";
    ExpectNoLitter();
    if (saved.ok()) break;
    ++num_full;
    ASSERT_THAT(saved, StatusIs(absl::StatusCode::kResourceExhausted,
                                AllOf(HasSubstr("rank 0: "), HasSubstr("No space left on device"))));
  }
  std::cout << num_full << " places" << std::endl;
  EXPECT_GE(num_full, 300);
  SaveWell();
  ExpectNoLitter();
}

TEST_F(BadDiskTest, EveryCallFails) {
  for (const int error : {EIO, ENOSPC, EDQUOT, EROFS, EACCES}) {
    int num_errors = 0;
    for (int n = 1;; ++n) {
      bool failed_yet = false;
      std::vector<std::string> calls;
      const absl::Status saved = SaveBadly(
          [&](DiskShim& shim) {
            shim.Before("", n, [&](const DiskCall&) {
              failed_yet = true;
              return error;
            });
          },
          &calls);
      if (HasFailure()) FAIL() << "call " << n << " fails with " << error << ": " << calls.back();
      if (!failed_yet) break;
      ++num_errors;
      if (!saved.ok()) {
        EXPECT_THAT(saved.message(), HasSubstr(std::generic_category().message(error)));
      }
      SaveWell();
    }
    std::cout << std::generic_category().message(error) << ": " << num_errors << " calls" << std::endl;
    EXPECT_GE(num_errors, 20);
  }
  // What could not be removed is removed by the next job.
  manager_.reset();
  ExpectNextSaveIsGood(save_);
}

TEST_F(BadDiskTest, AFailedFsyncIsNoCommit) {
  for (const int n : {1, 2}) {  // state.pt and manifest.json
    std::vector<std::string> calls;
    EXPECT_THAT(
        SaveBadly([&](DiskShim& shim) { shim.Before("fsync", n, [](const DiskCall&) { return EIO; }); }, &calls),
        StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("fsync"), HasSubstr("Input/output error"))));
    EXPECT_THAT(calls, Not(Contains(HasSubstr("rename"))));
    ExpectNoLitter();
  }
  std::vector<std::string> calls;
  EXPECT_THAT(
      SaveBadly([](DiskShim& shim) { shim.Before("fsync directory", 1, [](const DiskCall&) { return EIO; }); }, &calls),
      StatusIs(absl::StatusCode::kUnavailable, HasSubstr("fsync directory")));
  EXPECT_THAT(calls, Not(Contains(HasSubstr("rename"))));
  ExpectNoLitter();
  SaveWell();
}

TEST_F(BadDiskTest, AFailedRenameChangesNothing) {
  EXPECT_THAT(SaveBadly([](DiskShim& shim) { shim.Before("rename", 1, [](const DiskCall&) { return EIO; }); }),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rename")));
  ExpectNoLitter();
  // The second one is that of "latest".
  EXPECT_THAT(SaveBadly([](DiskShim& shim) { shim.Before("rename", 2, [](const DiskCall&) { return EIO; }); }),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("the checkpoint is at"), HasSubstr("rename"))));
  SaveWell();
  ExpectNoLitter();
}

// DUR-02, on a disk of 8 MiB where the machine lets us have one: 3 MiB are there, 20 MiB are saved, space is made, and
// they are saved again.
absl::Status FillASmallDisk(const std::string& disk) {
  ManagerSave save{.directory = disk + "/run", .policy = {.newest = 1}, .step = 1, .save = 1, .num_bytes = 3 << 20};
  const auto group = ProcessGroup::WorldOfOne();
  ABSL_ASSIGN_OR_RETURN(const auto manager, OpenManager(*group, Disk(), save));
  ABSL_RETURN_IF_ERROR(Save(*manager, save).status());
  for (const size_t num_bytes : {size_t{20} << 20, size_t{3} << 20, size_t{20} << 20, size_t{4} << 20}) {
    const RunLedger ledger(Disk(), save.directory, save.policy);
    ++save.step;
    ++save.save;
    save.num_bytes = num_bytes;
    const absl::Status saved = Save(*manager, save).status();
    ABSL_RETURN_IF_ERROR(manager->WaitForRemovals());
    const bool fits = num_bytes < size_t{8} << 20;
    if (saved.ok() != fits) return absl::InternalError(absl::StrCat(num_bytes, " bytes: ", saved.ToString()));
    if (!fits && !absl::StrContains(saved.message(), "No space left on device")) return saved;
    const RunLedger::Violations wrong =
        saved.ok() ? ledger.CheckTidy(Disk(), save.step, save.save) : ledger.Check(Disk(), save.step, save.save, false);
    if (!wrong.empty()) return absl::InternalError(wrong.front());
  }
  return absl::OkStatus();
}

TEST(SmallDiskTest, FullAndEmptiedAgain) {
  const std::string disk = FreshDirectory();
  const pid_t child = fork();
  if (child == 0) {
    // Then the limit of a file's size has to do (manager_cases_test).
    if (!MountSmallDisk(disk, 8 << 20)) {
      std::cout << "no small disk: this machine does not let us mount one" << std::endl;
      _exit(0);
    }
    const absl::Status ended = FillASmallDisk(disk);
    if (!ended.ok()) std::cerr << ended << std::endl;
    _exit(ended.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace cohort
