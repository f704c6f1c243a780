// CheckpointManager on two ranks that are processes, over gloo, on a real disk: the cases that have cost others their
// checkpoints. Every TEST body runs on every rank.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/manager_save.h"
#include "cohort/checkpoint/testing/run_ledger.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/faults/disk_shim.h"
#include "cohort/tests/harness/shared_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::DiskCall;
using ::cohort::testing::DiskShim;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::ManagerSave;
using ::cohort::testing::MonotonicNanoseconds;
using ::cohort::testing::NamesIn;
using ::cohort::testing::OpenManager;
using ::cohort::testing::PayloadName;
using ::cohort::testing::ReadFile;
using ::cohort::testing::RunLedger;
using ::cohort::testing::Save;
using ::cohort::testing::SharedGroup;
using ::cohort::testing::TestPayload;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

namespace fs = std::filesystem;

FileSystem& Disk() { return *FileSystem::Posix(); }

std::vector<std::string> WithoutClose(std::vector<std::string> calls) {
  std::erase_if(calls, [](const std::string& call) { return call.starts_with("close"); });
  return calls;
}

std::string StepName(int64_t step) { return absl::StrFormat("step_%08d", step); }

class ManagerCasesTest : public ::testing::Test {
 protected:
  void Meet() { ASSERT_THAT(group_.Agree("meet", absl::OkStatus()), IsOk()); }

  // On the main rank, while the others wait.
  void OnMain(const std::function<void()>& act) {
    Meet();
    if (group_.is_main()) act();
    Meet();
  }

  std::vector<std::string> Gather(std::string mine) {
    const auto all = group_.GatherBytes("compare", std::move(mine), 1 << 20);
    EXPECT_THAT(all, IsOk());
    return all.value_or(std::vector<std::string>());
  }

  void ExpectSameOnAllRanks(const std::string& mine) { EXPECT_THAT(Gather(mine), Each(mine)); }
  void ExpectSameOnAllRanks(const absl::Status& mine) {
    ExpectSameOnAllRanks(mine.ToString(absl::StatusToStringMode::kWithNoExtraData));
  }

  ManagerSave At(int64_t step) const {
    return {.directory = run_, .policy = policy_, .step = step, .save = step, .num_bytes = num_bytes_};
  }

  void OpenRun() {
    manager_.reset();
    Meet();
    auto manager =
        CheckpointManager::Open(&group_, {.directory = run_,
                                          .run_id = "run",
                                          .retention = policy_,
                                          .timeout = absl::Seconds(30),
                                          .on_warning = [&](std::string_view w) { warnings_.emplace_back(w); }});
    ASSERT_THAT(manager, IsOk());
    manager_ = *std::move(manager);
  }

  absl::Status SaveStep(int64_t step) { return Save(*manager_, At(step)).status(); }

  void SaveSteps(std::initializer_list<int64_t> steps) {
    OpenRun();
    for (const int64_t step : steps) ASSERT_THAT(SaveStep(step), IsOk());
    ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
  }

  // As a loader that verifies what it reads.
  static absl::Status Load(const CheckpointInfo& checkpoint) {
    if (PayloadName(ReadFile(checkpoint.path + "/state.pt")).has_value()) return absl::OkStatus();
    return absl::DataLossError("that is no state");
  }

  // The step that all ranks go on from, or -1.
  int64_t ResumeStep() {
    const auto resumed = manager_->Resume(Load);
    EXPECT_THAT(resumed, IsOk());
    const int64_t step = resumed.ok() && resumed->has_value() ? (*resumed)->step : -1;
    ExpectSameOnAllRanks(absl::StrCat(step));
    return step;
  }

  std::string Latest() const { return fs::read_symlink(run_ + "/latest"); }

  // What there is but for hidden files.
  std::vector<std::string> Names() const {
    std::vector<std::string> names = NamesIn(run_);
    std::erase_if(names, [](const std::string& name) { return name.starts_with("."); });
    return names;
  }

  std::string SharedDirectory() {
    const auto directory = group_.BroadcastBytes("directory", group_.is_main() ? FreshDirectory() : "");
    EXPECT_THAT(directory, IsOk());
    return directory.value_or("");
  }

  ProcessGroup& group_ = SharedGroup();
  const std::string dir_ = SharedDirectory();
  std::string run_ = dir_ + "/run";
  RetentionPolicy policy_;
  size_t num_bytes_ = 64;
  std::vector<std::string> warnings_;
  std::unique_ptr<CheckpointManager> manager_;
};

// ---- The pointer "latest" (PTH-05) ----

TEST_F(ManagerCasesTest, LatestHealsIfItLeadsNowhere) {
  for (const std::string target : {"step_00000099", "latest", "/nowhere/at/all"}) {
    OnMain([&] {
      fs::create_directories(run_);
      fs::remove(run_ + "/latest");
      fs::create_symlink(target, run_ + "/latest");
    });
    OpenRun();
    const int64_t step = manager_->newest().has_value() ? manager_->newest()->step + 1 : 1;
    ASSERT_THAT(SaveStep(step), IsOk());
    EXPECT_EQ(Latest(), StepName(step));
    EXPECT_EQ(ReadFile(run_ + "/latest/state.pt"), TestPayload(step, step));
  }
}

TEST_F(ManagerCasesTest, LatestThatIsAFileOrADirectoryIsTheSameErrorEverywhereAndStays) {
  SaveSteps({1});
  const auto make_file = [&] { WriteFile(run_ + "/latest", "precious"); };
  const auto make_directory = [&] {
    fs::create_directory(run_ + "/latest");
    WriteFile(run_ + "/latest/precious", "precious");
  };
  for (const std::function<void()>& make : {std::function<void()>(make_file), std::function<void()>(make_directory)}) {
    OnMain([&] {
      fs::remove_all(run_ + "/latest");
      make();
    });
    const std::vector<std::string> names = Names();
    const absl::Status saved = SaveStep(2);  // it has become one while the job runs
    EXPECT_THAT(saved,
                StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("rank 0: "), HasSubstr("latest"))));
    ExpectSameOnAllRanks(saved);
    manager_.reset();
    Meet();
    const absl::Status opened = OpenManager(group_, Disk(), At(2)).status();
    EXPECT_THAT(opened, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("latest")));
    ExpectSameOnAllRanks(opened);
    EXPECT_EQ(Names(), names);
    EXPECT_EQ(ReadFile(fs::is_directory(run_ + "/latest") ? run_ + "/latest/precious" : run_ + "/latest"), "precious");
    OnMain([&] {
      fs::remove_all(run_ + "/latest");
      fs::create_symlink(StepName(1), run_ + "/latest");
    });
    OpenRun();
  }
  ASSERT_THAT(SaveStep(2), IsOk());
  EXPECT_EQ(Latest(), StepName(2));
}

TEST_F(ManagerCasesTest, TheWholeDirectoryMayBeMoved) {
  SaveSteps({1, 2});
  manager_.reset();
  OnMain([&] { fs::rename(run_, dir_ + "/moved"); });
  run_ = dir_ + "/moved";
  EXPECT_EQ(ReadFile(run_ + "/latest/state.pt"), TestPayload(2, 2));
  OpenRun();
  EXPECT_EQ(ResumeStep(), 2);
  ASSERT_THAT(SaveStep(3), IsOk());
  EXPECT_EQ(Latest(), StepName(3));
}

// Reads through "latest" in a tight loop, as somebody who plots or evaluates does.
class LatestReader {
 public:
  explicit LatestReader(std::string run) : run_(std::move(run)), thread_([this] { Run(); }) {}
  ~LatestReader() { Stop(); }

  // Blocks until it has been round once more.
  void AwaitRound() const {
    const int64_t before = num_rounds_;
    while (num_rounds_ < before + 2) std::this_thread::yield();
  }

  // What was wrong, each kind once.
  std::vector<std::string> Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return wrongs_;
  }
  int64_t num_rounds() const { return num_rounds_; }
  int64_t num_read() const { return num_read_; }

 private:
  void Run() {
    for (; !stop_; ++num_rounds_) Round();
  }

  void Round() {
    const std::string target = Target();
    const int fd = open((run_ + "/latest/state.pt").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
      // Between two names of its path the kernel may let any time pass, in which "latest" moves on and what it led to goes.
      if (Target() == target) Report("missing");
      return;
    }
    const absl::Cleanup close_fd = [&] { close(fd); };
    std::string contents(1 << 20, '\0');
    size_t size = 0;
    for (ssize_t got; (got = read(fd, contents.data() + size, contents.size() - size)) > 0;) size += got;
    contents.resize(size);
    ++num_read_;
    if (!PayloadName(contents).has_value()) return Report("torn");
    int64_t step = 0;
    (void)std::sscanf(contents.c_str(), "%ld", &step);
    if (step < last_step_) Report("older than before");
    last_step_ = step;
  }

  std::string Target() {
    std::error_code error;
    const fs::path target = fs::read_symlink(run_ + "/latest", error);
    if (error) Report("no link");
    return target;
  }

  void Report(const std::string& wrong) {
    if (std::find(wrongs_.begin(), wrongs_.end(), wrong) == wrongs_.end()) wrongs_.push_back(wrong);
  }

  const std::string run_;
  std::vector<std::string> wrongs_;  // the thread's as long as it runs
  int64_t last_step_ = 0;
  std::atomic<int64_t> num_rounds_ = 0;
  std::atomic<int64_t> num_read_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses the others
};

TEST_F(ManagerCasesTest, AReaderNeverFindsLatestMissingOrTornDuring300Saves) {
  policy_ = {.newest = 1};
  num_bytes_ = 100'000;
  SaveSteps({1});
  LatestReader reader(run_);
  for (int64_t step = 2; step <= 300; ++step) ASSERT_THAT(SaveStep(step), IsOk());
  EXPECT_THAT(reader.Stop(), IsEmpty());
  EXPECT_GE(reader.num_read(), 300);
  RecordProperty("rounds", absl::StrCat(reader.num_rounds()));
  RecordProperty("read", absl::StrCat(reader.num_read()));
  std::printf("rank %d: %ld of %ld rounds read a checkpoint\n", group_.rank(), long{reader.num_read()},
              long{reader.num_rounds()});
}

TEST_F(ManagerCasesTest, TheReaderFindsALatestThatIsRemovedAndMadeAgain) {
  SaveSteps({1});
  LatestReader reader(run_);
  reader.AwaitRound();
  OnMain([&] { fs::remove(run_ + "/latest"); });
  reader.AwaitRound();
  Meet();
  OnMain([&] { fs::create_symlink(StepName(1), run_ + "/latest"); });
  EXPECT_THAT(reader.Stop(), Contains("no link"));
}

TEST_F(ManagerCasesTest, TheReaderFindsACheckpointThatGoesBeforeLatestMoves) {
  SaveSteps({1});
  LatestReader reader(run_);
  OnMain([&] { fs::rename(run_ + "/step_00000001", run_ + "/elsewhere"); });
  reader.AwaitRound();
  EXPECT_THAT(reader.Stop(), Contains("missing"));
}

TEST_F(ManagerCasesTest, TheReaderFindsAFileThatIsWrittenInPlace) {
  SaveSteps({1});
  LatestReader reader(run_);
  OnMain([&] { WriteFile(run_ + "/step_00000001/state.pt", TestPayload(1, 1).substr(0, 30)); });
  reader.AwaitRound();
  EXPECT_THAT(reader.Stop(), Contains("torn"));
}

// ---- What is kept (RET-01, RET-03) ----

// Looks before every call that rank 0 makes to the disk.
class KeepWatch {
 public:
  KeepWatch(DiskShim& shim, std::string run) : run_(std::move(run)) {
    shim.Before("", 0, [this](const DiskCall&) {
      Look();
      return 0;
    });
  }
  size_t most() const { return most_; }    // checkpoints seen at a time
  size_t least() const { return least_; }  // complete ones seen at a time

 private:
  void Look() {
    size_t num_names = 0;
    size_t num_whole = 0;
    for (const std::string& name : NamesIn(run_)) {
      if (!name.starts_with("step_")) continue;
      ++num_names;
      num_whole += PayloadName(ReadFile(run_ + "/" + name + "/state.pt")).has_value() &&
                   fs::exists(run_ + "/" + name + "/manifest.json");
    }
    most_ = std::max(most_, num_names);
    least_ = std::min(least_, num_whole);
  }

  const std::string run_;
  size_t most_ = 0;
  size_t least_ = 1'000'000;
};

TEST_F(ManagerCasesTest, TheHighestNumbersAreKeptNotTheLastBySpelling) {
  policy_ = {.newest = 3};
  SaveSteps({900});
  DiskShim shim(run_);
  const KeepWatch watch(shim, run_);
  std::vector<int64_t> all = {900};
  for (int64_t step = 1'000; step <= 10'100; step += 100) {
    ASSERT_THAT(SaveStep(step), IsOk());
    ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
    all.push_back(step);
    std::vector<std::string> wanted = {"latest", "run.json"};
    for (size_t i = all.size() - std::min<size_t>(3, all.size()); i < all.size(); ++i)
      wanted.push_back(StepName(all[i]));
    EXPECT_EQ(Names(), wanted);
    Meet();
  }
  if (!group_.is_main()) return;
  EXPECT_GE(watch.least(), 1u);
  EXPECT_EQ(watch.most(), 4u);
}

// Names of eight digits sort like numbers; these do not.
TEST_F(ManagerCasesTest, NumbersWithMoreDigitsThanTheNamesHaveAreStillNumbers) {
  policy_ = {.newest = 1};
  SaveSteps({99'999'999, 100'000'000, 1'000'000'000'000});
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_1000000000000"));
  OpenRun();
  EXPECT_EQ(ResumeStep(), 1'000'000'000'000);
}

TEST_F(ManagerCasesTest, TheNewestAndTheBestAreKeptAtAnyTime) {
  policy_ = {.newest = 1, .best = {{.metric = "loss"}}};
  OpenRun();
  ManagerSave best = At(50);
  best.loss = 0.125;
  ASSERT_THAT(Save(*manager_, best), IsOk());
  DiskShim shim(run_);
  const KeepWatch watch(shim, run_);
  for (int64_t step = 100; step <= 1'000; step += 100) {
    ManagerSave save = At(step);
    save.loss = 1;
    ASSERT_THAT(Save(*manager_, save), IsOk());
    ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
    EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000050", StepName(step)));
    Meet();
  }
  if (!group_.is_main()) return;
  EXPECT_GE(watch.least(), 1u);
  EXPECT_EQ(watch.most(), 3u);
}

TEST_F(ManagerCasesTest, ASaveThatFailsTakesNothingAwayAndTheOldOneLoads) {
  policy_ = {.newest = 1};
  num_bytes_ = 300'000;
  SaveSteps({1});
  {
    DiskShim shim(run_);
    shim.LimitBytes(100'000);
    const absl::Status full = SaveStep(2);
    EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("rank 0: "), HasSubstr("No space left on device"))));
    ExpectSameOnAllRanks(full);
  }
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000001"));
  EXPECT_EQ(manager_->num_failed_saves(), 1);
  OpenRun();
  EXPECT_EQ(ResumeStep(), 1);
}

TEST_F(ManagerCasesTest, TheOldOneGoesOnlyOnceTheNewOneIsDurableAndOnlyTheMainRankRemoves) {
  policy_ = {.newest = 1};
  SaveSteps({1});
  DiskShim shim(run_);
  const KeepWatch watch(shim, run_);
  ASSERT_THAT(SaveStep(2), IsOk());
  ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000002"));
  Meet();
  if (!group_.is_main()) {
    EXPECT_THAT(shim.Names(), IsEmpty());
    return;
  }
  EXPECT_EQ(watch.most(), 2u);  // one more than are kept
  EXPECT_THAT(WithoutClose(shim.Names()),
              ElementsAre("mkdir STEP", "create state.pt", "write state.pt", "write state.pt", "write state.pt",
                          "create manifest.json", "write manifest.json", "fsync state.pt", "fsync manifest.json",
                          "fsync directory STEP", "rename step_00000002", "fsync directory run", "symlink LATEST",
                          "rename latest", "fsync directory run", "rename REMOVED", "fsync directory run",
                          StartsWith("unlink"), StartsWith("unlink"), "rmdir REMOVED"));
}

// ---- What to go on from (RET-04, RET-05) ----

TEST_F(ManagerCasesTest, AnIncompleteNewestOneIsPassedOverWithOneWarning) {
  SaveSteps({20, 30});
  const std::string newest = run_ + "/" + StepName(30);
  const std::string manifest = ReadFile(newest + "/manifest.json");
  const std::pair<std::function<void()>, std::string> damages[] = {
      {[&] { fs::remove(newest + "/manifest.json"); }, "manifest.json"},
      {[&] { WriteFile(newest + "/manifest.json", ""); }, "manifest.json"},
      {[&] { WriteFile(newest + "/manifest.json", manifest.substr(0, manifest.size() / 2)); }, "manifest.json"},
      {[&] { WriteFile(newest + "/state.pt", TestPayload(30, 30).substr(0, 40)); },
       "state.pt has 40 bytes; 64 were saved"},
      {[&] { WriteFile(newest + "/state.pt", ""); }, "state.pt has 0 bytes; 64 were saved"},
      {[&] { fs::remove(newest + "/state.pt"); }, "state.pt"},
      {[&] { WriteFile(newest + "/state.pt", std::string(64, '\0')); }, "state.pt"},
      {[&] {
         fs::remove_all(newest);
         WriteFile(newest, "a file");
       },
       "step_00000030"},
  };
  for (const auto& [damage, why] : damages) {
    SCOPED_TRACE(why);
    OnMain([&] {
      fs::remove_all(newest);
      fs::create_directory(newest);
      WriteFile(newest + "/state.pt", TestPayload(30, 30));
      WriteFile(newest + "/manifest.json", manifest);
      damage();
    });
    OpenRun();
    warnings_.clear();
    EXPECT_EQ(ResumeStep(), 20);
    if (group_.is_main()) {
      EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("30"), HasSubstr(why))));
    }
    const auto asked = manager_->ResumeFrom(30, Load);
    EXPECT_THAT(asked, StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr("30"), HasSubstr(why))));
    ExpectSameOnAllRanks(asked.status());
    EXPECT_TRUE(fs::exists(newest));
  }
}

TEST_F(ManagerCasesTest, OddNamesAreSkippedAndNeverRemoved) {
  policy_ = {.newest = 1};
  SaveSteps({10, 20});
  const std::vector<std::string> junk = {"step_abc",     "step_-5",          "step_99999999999999999999",
                                         ".step_40.tmp", "step_50",          "step_",
                                         "step_60-x",    "step_30\nnewline", "step_70.pt",
                                         "notes.txt",    "step_00000080"};
  OnMain([&] {
    for (const std::string& name : junk) {
      if (name == "step_50" || name == "step_70.pt" || name == "notes.txt") {
        WriteFile(run_ + "/" + name, "precious");
      } else {
        fs::create_directory(run_ + "/" + name);
        WriteFile(run_ + "/" + name + "/precious", "precious");
      }
    }
    fs::permissions(run_ + "/step_00000080", fs::perms::none);
    // The same step twice: as it is written, and without zeros.
    fs::copy(run_ + "/" + StepName(20), run_ + "/step_20", fs::copy_options::recursive);
  });
  OpenRun();
  warnings_.clear();
  EXPECT_EQ(ResumeStep(), 20);
  if (group_.is_main()) {
    ASSERT_THAT(warnings_, SizeIs(1));
    EXPECT_THAT(warnings_[0], AllOf(HasSubstr("step_abc"), HasSubstr("step_-5"), HasSubstr("99999999999999999999"),
                                    HasSubstr("step_50"), HasSubstr("step_30\\nnewline"), Not(HasSubstr("\n"))));
  }
  ASSERT_THAT(SaveStep(21), IsOk());
  ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
  const std::vector<std::string> names = NamesIn(run_);
  for (const std::string& name : junk) EXPECT_THAT(names, Contains(name));
  EXPECT_THAT(names, Contains(StepName(21)));
  EXPECT_THAT(names, Not(Contains(StepName(20))));
  OnMain([&] { fs::permissions(run_ + "/step_00000080", fs::perms::owner_all); });
}

// ---- A bad disk (DUR-02, DUR-04), and a slow one ----

TEST_F(ManagerCasesTest, EveryRankHearsOfAFullDiskAndTheSameProcessesGoOn) {
  policy_ = {.newest = 1};
  num_bytes_ = 3 << 20;
  SaveSteps({1});
  num_bytes_ = 20 << 20;
  rlimit before = {};
  if (group_.is_main()) {
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small = {.rlim_cur = 8 << 20, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  const absl::Status full = SaveStep(2);
  if (group_.is_main()) {
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  }
  EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                             AllOf(HasSubstr("rank 0: "), HasSubstr("File too large"),
                                   HasSubstr("bytes had been written and"), HasSubstr("more were to follow"))));
  ExpectSameOnAllRanks(full);
  EXPECT_EQ(PayloadName(ReadFile(run_ + "/latest/state.pt")), "step 1, save 1");
  EXPECT_THAT(NamesIn(run_), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000001"));
  Meet();
  ASSERT_THAT(SaveStep(2), IsOk());
  ASSERT_THAT(manager_->WaitForRemovals(), IsOk());
  EXPECT_EQ(PayloadName(ReadFile(run_ + "/latest/state.pt")), "step 2, save 2");
  EXPECT_THAT(Names(), ElementsAre("latest", "run.json", "step_00000002"));
}

TEST_F(ManagerCasesTest, TheCheckpointIsDurableBeforeAnyRankReturns) {
  run_ = dir_ + "/a/b/run";
  DiskShim shim(dir_);
  OpenRun();
  const size_t num_opening = shim.Calls().size();
  // The last sync is slow, so that a rank which does not wait for it would return before it.
  int num_syncs = 0;
  shim.Before("fsync directory", 0, [&](const DiskCall& call) {
    if (call.path == run_ && ++num_syncs == 3) absl::SleepFor(absl::Milliseconds(300));
    return 0;
  });
  ASSERT_THAT(SaveStep(1), IsOk());
  const std::vector<std::string> returned = Gather(absl::StrCat(MonotonicNanoseconds()));
  if (!group_.is_main()) {
    EXPECT_THAT(shim.Names(), IsEmpty());
    return;
  }
  std::vector<std::string> calls = shim.Names();
  calls.erase(calls.begin(), calls.begin() + static_cast<ptrdiff_t>(num_opening));
  const std::string top = "fsync directory " + dir_.substr(dir_.rfind('/') + 1);
  EXPECT_THAT(WithoutClose(calls),
              ElementsAre("create TEMPORARY", "write TEMPORARY", "fsync TEMPORARY", "rename run.json",
                          "fsync directory run", "fsync directory b", "fsync directory a", top, "mkdir STEP",
                          "create state.pt", "write state.pt", "write state.pt", "write state.pt",
                          "create manifest.json", "write manifest.json", "fsync state.pt", "fsync manifest.json",
                          "fsync directory STEP", "rename step_00000001", "fsync directory run", "fsync directory b",
                          "fsync directory a", top, "symlink LATEST", "rename latest", "fsync directory run"));
  int64_t durable = 0;
  for (const DiskCall& call : shim.Calls()) {
    if (!call.operation.starts_with("fsync")) continue;
    EXPECT_EQ(call.error, 0) << call.operation << " " << call.path;
    durable = call.ended_ns;
  }
  for (const std::string& rank : returned) EXPECT_GT(std::stoll(rank), durable);
}

TEST_F(ManagerCasesTest, AnErrorOfSyncIsEveryRanksAndNothingIsRenamed) {
  SaveSteps({1});
  {
    DiskShim shim(run_);
    shim.Before("fsync", 1, [](const DiskCall&) { return EIO; });
    const absl::Status broken = SaveStep(2);
    EXPECT_THAT(broken, StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr("rank 0: "), HasSubstr("fsync"), HasSubstr("Input/output error"))));
    ExpectSameOnAllRanks(broken);
    EXPECT_THAT(shim.Names(), Not(Contains(HasSubstr("rename"))));
  }
  EXPECT_THAT(NamesIn(run_), ElementsAre(".cohort-lock", "latest", "run.json", "step_00000001"));
  Meet();
  ASSERT_THAT(SaveStep(2), IsOk());
}

TEST_F(ManagerCasesTest, TheOtherRankWaitsForASlowDisk) {
  SaveSteps({1});
  DiskShim shim(run_);
  shim.Before("write", 0, [](const DiskCall&) {
    absl::SleepFor(absl::Seconds(2));
    return 0;
  });
  const auto report = Save(*manager_, At(2));
  ASSERT_THAT(report, IsOk());
  EXPECT_GE(report->write_time, absl::Seconds(6));  // three pieces
  EXPECT_GE(report->blocked, report->write_time);
  EXPECT_EQ(ReadFile(run_ + "/latest/state.pt"), TestPayload(2, 2));
}

}  // namespace
}  // namespace cohort
