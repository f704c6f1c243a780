// Two real ranks save through CheckpointManager, and one of them is killed: at every system call that rank 0 makes to the
// disk, one job for each. RunLedger says what must be true of the directory afterwards; the rank that is left must not
// hang, and must not say OK of a checkpoint that is not there.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/manager_save.h"
#include "cohort/checkpoint/testing/run_ledger.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/faults/disk_shim.h"
#include "cohort/tests/faults/forked_job.h"
#include "cohort/tests/faults/small_disk.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::cohort::testing::DiskCall;
using ::cohort::testing::DiskShim;
using ::cohort::testing::ForkedJob;
using ::cohort::testing::FreshDirectoryInMemory;
using ::cohort::testing::ManagerSave;
using ::cohort::testing::NamesIn;
using ::cohort::testing::OpenAndSave;
using ::cohort::testing::OpenManager;
using ::cohort::testing::ReadFile;
using ::cohort::testing::RunLedger;
using ::cohort::testing::Save;
using ::cohort::testing::WriteFile;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

FileSystem& Disk() { return *FileSystem::Posix(); }

// What rank 0 does before a call to the disk.
using Disturbance = std::function<int(pid_t other)>;

int KillSelf(pid_t) { return raise(SIGKILL); }

int KillOther(pid_t other) {
  kill(other, SIGKILL);
  return 0;
}

// Rank 0's `n`-th call is disturbed; then there is a file at `mark`.
absl::Status SaveDisturbed(ProcessGroup& group, pid_t other, const ManagerSave& save, int n,
                           const Disturbance& disturbance, const std::string& mark) {
  std::optional<DiskShim> shim;
  if (group.is_main()) {
    shim.emplace(save.directory);
    shim->Before("", n, [&](const DiskCall&) {
      WriteFile(mark, "");
      return disturbance(other);
    });
  }
  return OpenAndSave(group, Disk(), save);
}

// Saves again and again into one directory, of which the newest checkpoint is kept, with the n-th job disturbed at rank
// 0's n-th call. Gives `check` how the ranks of each ended, and returns how many jobs were disturbed.
int DisturbEveryCall(const Disturbance& disturbance,
                     const std::function<void(const std::vector<std::string>&)>& check) {
  ManagerSave save{.directory = FreshDirectoryInMemory(), .policy = {.newest = 1}, .num_bytes = 100'000};
  const std::string mark = FreshDirectoryInMemory() + "/disturbed";
  const auto save_alone = [&] {
    const RunLedger ledger(Disk(), save.directory, save.policy);
    save.step = ++save.save;
    EXPECT_THAT(OpenAndSave(*ProcessGroup::WorldOfOne(), Disk(), save), IsOk());
    EXPECT_THAT(ledger.CheckTidy(Disk(), save.step, save.save), IsEmpty());
  };
  save_alone();
  for (int n = 1;; ++n) {
    SCOPED_TRACE(absl::StrCat("call ", n));
    const RunLedger ledger(Disk(), save.directory, save.policy);
    save.step = ++save.save;
    ForkedJob job([&](ProcessGroup& group, const std::vector<pid_t>& pids) {
      return SaveDisturbed(group, pids[1], save, n, disturbance, mark);
    });
    const std::vector<std::string> ends = job.Wait();
    const bool saved = ends[0] == "OK" || ends[1] == "OK";
    EXPECT_THAT(ledger.Check(Disk(), save.step, save.save, saved), IsEmpty()) << ends[0] << ", " << ends[1];
    if (!std::filesystem::remove(mark)) {
      EXPECT_THAT(ends, Each("OK"));
      return n - 1;
    }
    check(ends);
    save_alone();
    if (::testing::Test::HasFailure()) return n;
  }
}

TEST(KilledRanksTest, TheMainRankAtEveryCall) {
  const int kills = DisturbEveryCall(KillSelf, [](const std::vector<std::string>& ends) {
    EXPECT_EQ(ends[0], "killed");
    // Before the save, in it, or so late that the other rank knows that it is done.
    EXPECT_THAT(ends[1], AnyOf(StartsWith("UNAVAILABLE"), "OK")) << ends[1];
    if (ends[1] != "OK") {
      EXPECT_THAT(ends[1], HasSubstr("rank 0"));
    }
  });
  std::cout << kills << " kills" << std::endl;
  EXPECT_GE(kills, 25);
}

TEST(KilledRanksTest, TheOtherRankAtEveryCallOfTheMainRank) {
  const int kills = DisturbEveryCall(KillOther, [](const std::vector<std::string>& ends) {
    EXPECT_THAT(ends[1], AnyOf("killed", "OK"));  // it may have ended while the main rank still removes
    if (ends[0] != "OK") {
      EXPECT_THAT(ends[0], HasSubstr("rank 1"));
    }
  });
  std::cout << kills << " kills" << std::endl;
  EXPECT_GE(kills, 10);
}

TEST(KilledRanksTest, AnErrorOfEveryCallOfTheMainRankIsTheSameOnBoth) {
  int num_saved = 0;
  const int errors = DisturbEveryCall([](pid_t) { return EIO; },
                                      [&](const std::vector<std::string>& ends) {
                                        EXPECT_EQ(ends[0], ends[1]);
                                        EXPECT_THAT(ends[0], AnyOf("OK", HasSubstr("rank 0: ")));
                                        num_saved += ends[0] == "OK";
                                      });
  std::cout << errors << " errors, of which " << num_saved << " did not matter" << std::endl;
  EXPECT_GE(errors, 25);
  EXPECT_LT(num_saved, errors - 10);
}

// Checkpoint after checkpoint, until somebody ends it.
absl::Status SaveForEver(ProcessGroup& group, ManagerSave save) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<CheckpointManager> manager, OpenManager(group, Disk(), save));
  for (;; ++save.step, ++save.save) ABSL_RETURN_IF_ERROR(Save(*manager, save).status());
}

// DUR-01
TEST(KilledRanksTest, TheMainRankAtRandomMoments) {
  const std::string dir = FreshDirectoryInMemory();
  ManagerSave save{.directory = dir, .policy = {.newest = 1}, .num_bytes = 1 << 20};
  std::mt19937 random(7);
  int num_new = 0;
  for (int i = 1; i <= 200; ++i) {
    save.step = 100'000 * i;
    const RunLedger before(Disk(), dir, {});
    ForkedJob job([&](ProcessGroup& group, const std::vector<pid_t>&) { return SaveForEver(group, save); });
    // From the moment when the first of them is there, however long the ranks need to meet.
    const std::string first = absl::StrFormat("step_%08d", save.step);
    while (Disk().ReadLink(dir + "/latest").value_or("") < first) absl::SleepFor(absl::Milliseconds(1));
    absl::SleepFor(absl::Microseconds(std::uniform_int_distribution<int>(0, 20'000)(random)));
    kill(job.pid(0), SIGKILL);
    const std::vector<std::string> ends = job.Wait();
    EXPECT_EQ(ends[0], "killed");
    EXPECT_THAT(ends[1], HasSubstr("rank 0"));
    const RunLedger after(Disk(), dir, {});  // all that is there is whole
    ASSERT_GE(after.last_step(), save.step);
    EXPECT_LE(after.size(), std::max<size_t>(before.size(), 1) + 1);  // the old ones go once a new one is there
    num_new += after.last_step() > save.step;
  }
  EXPECT_GT(num_new, 0);
}

// ---- Others who read ----

constexpr int64_t kElements = 1 << 20;

// A checkpoint of step 1 whose file LibTorch would load.
void SaveTensors(const ManagerSave& save) {
  const auto group = ProcessGroup::WorldOfOne();
  const auto manager = OpenManager(*group, Disk(), save);
  ASSERT_THAT(manager, IsOk());
  const NamedTensors state = {{"first", at::full({kElements}, 1.0)}, {"second", at::full({kElements}, 2.0)}};
  ASSERT_THAT(
      (*manager)->Save({.step = 1}, "state.pt", [&](WritableFile& file) { return WriteTorchFile(state, file); }),
      IsOk());
}

// Opens the file, tells that it has, and reads it once it is told to.
absl::Status LoadSlowly(const std::string& path, bool map, int tell, int wait) {
  ABSL_ASSIGN_OR_RETURN(const StateFile file, StateFile::Open(path));
  ABSL_CHECK_EQ(write(tell, "o", 1), 1);
  char go = 0;
  ABSL_CHECK_EQ(read(wait, &go, 1), 1);
  for (const auto& [name, value] : {std::pair("first", 1.0), std::pair("second", 2.0)}) {
    ABSL_ASSIGN_OR_RETURN(const at::Tensor tensor, file.ReadTensor(name, {.map = map}));
    if (!tensor.equal(at::full({kElements}, value))) return absl::DataLossError(name);
  }
  return absl::OkStatus();
}

// RET-03
TEST(RemovedWhileLoadingTest, WhoHasOpenedACheckpointReadsItToItsEnd) {
  at::set_num_threads(1);  // LibTorch's other threads would be missing in the children
  for (const bool map : {false, true}) {
    const ManagerSave save{.directory = FreshDirectoryInMemory(), .policy = {.newest = 1}, .step = 2, .save = 2};
    SaveTensors(save);
    int opened[2], go[2];
    ASSERT_TRUE(pipe(opened) == 0 && pipe(go) == 0);
    const pid_t reader = fork();
    if (reader == 0) {
      const absl::Status loaded = LoadSlowly(save.directory + "/step_00000001/state.pt", map, opened[1], go[0]);
      if (!loaded.ok()) std::cerr << loaded << std::endl;
      _exit(loaded.ok() ? 0 : 1);
    }
    char byte = 0;
    ASSERT_EQ(read(opened[0], &byte, 1), 1);
    ForkedJob job([&](ProcessGroup& group, const std::vector<pid_t>&) { return OpenAndSave(group, Disk(), save); });
    EXPECT_THAT(job.Wait(), Each("OK"));
    EXPECT_THAT(NamesIn(save.directory), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000002"));
    ASSERT_EQ(write(go[1], "g", 1), 1);
    int status = 0;
    ASSERT_EQ(waitpid(reader, &status, 0), reader);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (const int fd : {opened[0], opened[1], go[0], go[1]}) close(fd);
  }
}

}  // namespace
}  // namespace cohort
