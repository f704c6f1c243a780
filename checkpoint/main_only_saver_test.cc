#include "cohort/checkpoint/main_only_saver.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/atomic_file.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/testing/crash_file_system.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::CrashFileSystem;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::cohort::testing::RunRanks;
using ::cohort::testing::ThreadGroup;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

absl::Status WriteNew(WritableFile& file) { return file.Append("new"); }

// A saver of `group`'s rank, on which a save may take a minute: an error that comes before it is not the timeout's.
MainOnlySaver SaverOf(ProcessGroup& group, FileSystem* file_system = nullptr) {
  return MainOnlySaver(&group, {.timeout = absl::Minutes(1)}, file_system);
}

absl::Status SaveNew(ProcessGroup& group, std::string_view path, FileSystem* file_system = nullptr) {
  return SaverOf(group, file_system).Save(path, WriteNew).status();
}

class MainOnlySaverTest : public ::testing::Test {
 protected:
  // Every rank got `error`, and could go on: a save to a good path works.
  void ExpectOnAllRanksAndUsable(std::string_view path, absl::StatusCode code, const std::string& why,
                                 WritePayload write = WriteNew) {
    const std::string good = dir_ + "/good.pt";
    const auto outcomes = RunRanks(3, [&](ProcessGroup& group) {
      const absl::Status failed = SaverOf(group).Save(path, write).status();
      EXPECT_THAT(SaveNew(group, good), IsOk());
      return failed;
    });
    EXPECT_THAT(outcomes, Each(StatusIs(code, AllOf(HasSubstr("rank 0: "), HasSubstr(why))))) << path;
    EXPECT_THAT(outcomes, Each(outcomes[0]));
    EXPECT_EQ(ReadFile(good), "new");
    std::filesystem::remove(good);
  }

  const std::string dir_ = FreshDirectory();
  const std::string target_ = dir_ + "/m.pt";
};

// ---- A save that works ----

TEST_F(MainOnlySaverTest, EveryRankReadsTheFileAtOnceAndHasTheSameReport) {
  absl::Mutex mutex;
  std::vector<SaveReport> reports;
  const auto outcomes = RunRanks(4, [&](ProcessGroup& group) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(const SaveReport report, SaverOf(group).Save(target_, WriteNew));
    EXPECT_EQ(ReadFile(report.path), "new");
    absl::MutexLock lock(mutex);
    reports.push_back(report);
    return absl::OkStatus();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  ASSERT_EQ(reports.size(), 4);
  for (const SaveReport& report : reports) {
    EXPECT_EQ(report.path, target_);
    EXPECT_EQ(report.num_bytes, 3);
    EXPECT_EQ(report.write_time, reports[0].write_time);
    EXPECT_EQ(report.sync_time, reports[0].sync_time);
    EXPECT_GE(report.blocked, report.sync_time);
  }
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(MainOnlySaverTest, OnlyTheMainRankWrites) {
  std::atomic<int> calls = 0;
  const auto outcomes = RunRanks(4, [&](ProcessGroup& group) {
    return SaverOf(group)
        .Save(target_,
              [&](WritableFile& file) {
                ++calls;
                EXPECT_TRUE(group.is_main());
                return file.Append(absl::StrCat("rank ", group.rank()));
              })
        .status();
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(ReadFile(target_), "rank 0");
}

TEST_F(MainOnlySaverTest, OneWriterInTheJobNotOneANode) {
  std::vector<std::unique_ptr<CrashFileSystem>> disks;
  for (int rank = 0; rank < 4; ++rank) disks.push_back(std::make_unique<CrashFileSystem>());
  ThreadGroup threads({.world_size = 4, .ranks_per_node = 2});
  EXPECT_THAT(threads.Run([&](ProcessGroup& group) { return SaveNew(group, "/a/m.pt", disks[group.rank()].get()); }),
              Each(IsOk()));
  EXPECT_EQ(disks[0]->Read("/a/m.pt"), "new");
  for (int rank = 1; rank < 4; ++rank) EXPECT_EQ(disks[rank]->Log(), "");
}

TEST_F(MainOnlySaverTest, AWorldOfOneNeedsNobody) {
  const auto group = ProcessGroup::WorldOfOne();
  EXPECT_THAT(SaveNew(*group, target_), IsOk());
  EXPECT_EQ(ReadFile(target_), "new");
}

TEST_F(MainOnlySaverTest, TakesRelativePathsFromTheBaseDirectory) {
  const auto group = ProcessGroup::WorldOfOne();
  MainOnlySaver saver(group.get(), {.base_directory = dir_});
  const auto report = saver.Save("sub/./m.pt", WriteNew);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->path, dir_ + "/sub/m.pt");
  EXPECT_EQ(ReadFile(dir_ + "/sub/m.pt"), "new");
}

TEST_F(MainOnlySaverTest, TakesRelativePathsFromWhereThePersonStandsOrFromTheWorkingDirectory) {
  const auto group = ProcessGroup::WorldOfOne();
  MainOnlySaver saver(group.get());
  setenv("BUILD_WORKING_DIRECTORY", (dir_ + "/person").c_str(), 1);
  const auto of_person = saver.Save("m.pt", WriteNew);
  unsetenv("BUILD_WORKING_DIRECTORY");
  ASSERT_THAT(of_person, IsOk());
  EXPECT_EQ(of_person->path, dir_ + "/person/m.pt");

  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(dir_);
  const auto of_process = saver.Save("m.pt", WriteNew);
  std::filesystem::current_path(before);
  ASSERT_THAT(of_process, IsOk());
  EXPECT_EQ(of_process->path, dir_ + "/m.pt");
}

TEST_F(MainOnlySaverTest, KeepsASymlinkAndReplacesItsTarget) {
  std::filesystem::create_directory(dir_ + "/real");
  WriteFile(dir_ + "/real/m.pt", "old");
  std::filesystem::create_symlink("real/m.pt", dir_ + "/link.pt");
  const auto group = ProcessGroup::WorldOfOne();
  const auto report = SaverOf(*group).Save(dir_ + "/link.pt", WriteNew);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->path, dir_ + "/real/m.pt");
  EXPECT_EQ(ReadFile(dir_ + "/real/m.pt"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ + "/link.pt"));
}

// ---- Errors that every rank hears of ----

TEST_F(MainOnlySaverTest, EveryRankReturnsWhatTheCallbackReturned) {
  WriteFile(target_, "old");
  ExpectOnAllRanksAndUsable(target_, absl::StatusCode::kDataLoss, "no such model",
                            [](WritableFile& file) -> absl::Status {
                              ABSL_RETURN_IF_ERROR(file.Append("half"));
                              return absl::DataLossError("no such model");
                            });
  EXPECT_EQ(ReadFile(target_), "old");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(MainOnlySaverTest, EveryRankReturnsWhatTheCallbackThrew) {
  WriteFile(target_, "old");
  ExpectOnAllRanksAndUsable(target_, absl::StatusCode::kInternal, "out of luck",
                            [](WritableFile&) -> absl::Status { throw std::runtime_error("out of luck"); });
  ExpectOnAllRanksAndUsable(target_, absl::StatusCode::kUnknown, "", [](WritableFile&) -> absl::Status { throw 42; });
  EXPECT_EQ(ReadFile(target_), "old");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(MainOnlySaverTest, AnErrorThatTheCallbackIgnoresIsStillAnError) {
  CrashFileSystem disk;
  disk.FailAt(2, absl::ResourceExhaustedError("No space left on device"));
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) {
    return SaverOf(group, &disk)
        .Save("/m.pt",
              [](WritableFile& file) {
                (void)file.Append("first");
                (void)file.Append("second");
                return absl::OkStatus();
              })
        .status();
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kResourceExhausted,
                                      AllOf(HasSubstr("cannot save \"/m.pt\""), HasSubstr("No space left")))));
  EXPECT_THAT(*disk.List("/"), IsEmpty());
}

TEST_F(MainOnlySaverTest, ARankThatIsNotReadyStopsTheSaveBeforeAnythingIsWritten) {
  CrashFileSystem disk;
  const auto outcomes = RunRanks(3, [&](ProcessGroup& group) -> absl::Status {
    const absl::Status ready = group.rank() == 2 ? absl::AbortedError("no random state") : absl::OkStatus();
    const absl::Status failed = SaverOf(group, &disk).Save("/m.pt", WriteNew, ready).status();
    EXPECT_EQ(disk.Log(), "");
    EXPECT_THAT(group.Agree("looked", absl::OkStatus()), IsOk());
    EXPECT_THAT(SaveNew(group, "/m.pt", &disk), IsOk());
    return failed;
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kAborted, HasSubstr("rank 2: no random state"))));
}

TEST_F(MainOnlySaverTest, EveryRankReturnsWhyThePathIsBad) {
  WriteFile(dir_ + "/file", "precious");
  std::filesystem::create_directories(dir_ + "/full/sub");
  WriteFile(dir_ + "/full/precious", "precious");
  std::filesystem::create_symlink("loop", dir_ + "/loop");
  const std::vector<std::string> before = NamesIn(dir_);
  const auto invalid = absl::StatusCode::kInvalidArgument;
  ExpectOnAllRanksAndUsable("", invalid, "the path is empty; name a file");
  ExpectOnAllRanksAndUsable("/", invalid, "names a directory");
  ExpectOnAllRanksAndUsable(".", invalid, "names a directory");
  ExpectOnAllRanksAndUsable(dir_ + "/new/", invalid, "names a directory");
  ExpectOnAllRanksAndUsable(dir_ + "/full", invalid, "names a directory");
  ExpectOnAllRanksAndUsable(dir_ + "/file/m.pt", invalid, "lies under \"" + dir_ + "/file\"");
  ExpectOnAllRanksAndUsable(dir_ + "/" + std::string(300, 'n'), invalid, "has a name of 300 bytes");
  ExpectOnAllRanksAndUsable(dir_ + "/new/" + std::string(300, 'n'), invalid, "has a name of 300 bytes");
  ExpectOnAllRanksAndUsable(dir_ + std::string(20000, '/') + std::string(10000, 'n'), invalid, "10000 bytes");
  ExpectOnAllRanksAndUsable(dir_ + "/loop", invalid, "symlinks");
  ExpectOnAllRanksAndUsable(std::string("a\0b", 3), invalid, "holds a zero byte");
  EXPECT_EQ(NamesIn(dir_), before);
  EXPECT_THAT(NamesIn(dir_ + "/full"), ElementsAre("precious", "sub"));
}

TEST_F(MainOnlySaverTest, RanksThatAskForDifferentPathsHearOfIt) {
  const auto outcomes =
      RunRanks(2, [&](ProcessGroup& group) { return SaveNew(group, absl::StrCat(dir_, "/", group.rank(), ".pt")); });
  EXPECT_THAT(outcomes,
              Each(StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("0.pt"), HasSubstr("1.pt")))));
  EXPECT_THAT(NamesIn(dir_), IsEmpty());
}

TEST_F(MainOnlySaverTest, RefusesATimeoutThatIsNoTime) {
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) {
    return MainOnlySaver(&group, {.timeout = absl::ZeroDuration()}).Save(target_, WriteNew).status();
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be positive"))));
}

// ---- Time ----

TEST_F(MainOnlySaverTest, AWriteMayTakeLongerThanTheGroupsTimeout) {
  ThreadGroup threads({.world_size = 2, .group = {.timeout = absl::Milliseconds(200)}});
  const auto outcomes = threads.Run([&](ProcessGroup& group) -> absl::Status {
    ABSL_RETURN_IF_ERROR(SaverOf(group)
                             .Save(target_,
                                   [&](WritableFile& file) {
                                     absl::SleepFor(absl::Milliseconds(600));  // the long write itself
                                     return file.Append("new");
                                   })
                             .status());
    return group.Agree("next", absl::OkStatus());
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  EXPECT_EQ(ReadFile(target_), "new");
}

TEST_F(MainOnlySaverTest, AMainRankThatIsLateGivesUpAndTheGroupGoesOn) {
  WriteFile(target_, "old");
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) {
    MainOnlySaver saver(&group, {.timeout = absl::Milliseconds(50)});
    const absl::Status late = saver
                                  .Save(target_,
                                        [&](WritableFile& file) -> absl::Status {
                                          for (;;) ABSL_RETURN_IF_ERROR(file.Append("x"));
                                        })
                                  .status();
    EXPECT_THAT(group.Agree("next", absl::OkStatus()), IsOk());
    return late;
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      AllOf(HasSubstr("rank 0: the save was given up after"),
                                            HasSubstr("its timeout is 50ms; what was saved before is as it was")))));
  EXPECT_EQ(ReadFile(target_), "old");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(MainOnlySaverTest, AMainRankThatIsLateDoesNotReplaceTheFileBehindTheOthersBacks) {
  WriteFile(target_, "old");
  absl::Notification gave_up;
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) {
    MainOnlySaver saver(&group, {.timeout = absl::Milliseconds(50)});
    const absl::Status late = saver
                                  .Save(target_,
                                        [&](WritableFile& file) {
                                          const absl::Status appended = file.Append("new");
                                          gave_up.WaitForNotification();  // one call that takes too long
                                          return appended;
                                        })
                                  .status();
    if (!group.is_main()) gave_up.Notify();
    return late;
  });
  EXPECT_THAT(outcomes, Each(StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      AllOf(HasSubstr("saved " + target_), HasSubstr("waited"), HasSubstr("rank 0")))));
  EXPECT_EQ(ReadFile(target_), "old");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

// ---- Dead ranks ----

TEST_F(MainOnlySaverTest, TheOthersHearOfAMainRankThatDiedWhileItWrote) {
  WriteFile(target_, "old");
  ThreadGroup threads(3);
  const auto outcomes = threads.Run([&](ProcessGroup& group) {
    return SaverOf(group)
        .Save(target_,
              [&](WritableFile& file) -> absl::Status {
                ABSL_RETURN_IF_ERROR(file.Append("half"));
                threads.Die(group);
              })
        .status();
  });
  for (int rank : {1, 2}) {
    EXPECT_THAT(outcomes[rank], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 0")));
  }
  EXPECT_EQ(ReadFile(target_), "old");
}

TEST_F(MainOnlySaverTest, TheFileIsWholeIfAnotherRankDiesWhileItIsWritten) {
  WriteFile(target_, "old");
  ThreadGroup threads(3);
  threads.KillAfter(/*rank=*/2, /*num_collectives=*/1);
  const auto outcomes = threads.Run([&](ProcessGroup& group) { return SaveNew(group, target_); });
  for (int rank : {0, 1}) {
    EXPECT_THAT(outcomes[rank], StatusIs(absl::StatusCode::kUnavailable, HasSubstr("rank 2")));
  }
  EXPECT_EQ(ReadFile(target_), "new");
}

// ---- The detectors, and what they detect ----

// A saver wrong on purpose.
absl::Status SaveWithoutSecondMeeting(ProcessGroup& group, FileSystem& disk) {
  ABSL_RETURN_IF_ERROR(group.Agree("save", absl::OkStatus()));
  if (!group.is_main()) return absl::OkStatus();
  ABSL_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(disk, "/m.pt"));
  ABSL_RETURN_IF_ERROR(file->Append("new"));
  ABSL_RETURN_IF_ERROR(file->Sync());
  return file->Publish();
}

// Another one.
absl::Status SaveOnEveryRank(ProcessGroup&, FileSystem& disk) {
  ABSL_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(disk, "/m.pt"));
  ABSL_RETURN_IF_ERROR(file->Append("new"));
  ABSL_RETURN_IF_ERROR(file->Sync());
  return file->Publish();
}

using Save = std::function<absl::Status(ProcessGroup&, FileSystem&)>;

absl::Status SaveWell(ProcessGroup& group, FileSystem& disk) { return SaveNew(group, "/m.pt", &disk); }

// A disk of which the last sync waits until some other rank's save has returned, but no longer than `patience`.
class SlowDisk final : public FileSystem {
 public:
  SlowDisk(absl::Notification& other_returned, absl::Duration patience)
      : other_returned_(other_returned), patience_(patience) {}

  absl::Status SyncDirectory(std::string_view path) override {
    returned_too_early_ = other_returned_.WaitForNotificationWithTimeout(patience_);
    return disk_.SyncDirectory(path);
  }
  bool returned_too_early() const { return returned_too_early_; }

  absl::StatusOr<FileInfo> Inspect(std::string_view path) override { return disk_.Inspect(path); }
  absl::StatusOr<std::string> ReadLink(std::string_view path) override { return disk_.ReadLink(path); }
  absl::StatusOr<std::vector<std::string>> List(std::string_view path) override { return disk_.List(path); }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(std::string_view path, std::optional<int> permissions) override {
    return disk_.Create(path, permissions);
  }
  absl::Status Rename(std::string_view from, std::string_view to) override { return disk_.Rename(from, to); }
  absl::Status Remove(std::string_view path) override { return disk_.Remove(path); }
  absl::Status RemoveIfAbandoned(std::string_view path) override { return disk_.RemoveIfAbandoned(path); }
  absl::Status MakeDirectory(std::string_view path) override { return disk_.MakeDirectory(path); }
  absl::StatusOr<std::string> ReadSmallFile(std::string_view path, int64_t max_bytes) override {
    return disk_.ReadSmallFile(path, max_bytes);
  }
  absl::Status RemoveDirectory(std::string_view path) override { return disk_.RemoveDirectory(path); }
  absl::Status MakeSymlink(std::string_view target, std::string_view path) override {
    return disk_.MakeSymlink(target, path);
  }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(std::string_view path, std::string_view owner) override {
    return disk_.Lock(path, owner);
  }

 private:
  absl::Notification& other_returned_;
  const absl::Duration patience_;
  CrashFileSystem disk_;
  std::atomic<bool> returned_too_early_ = false;
};

bool SomebodyReturnsBeforeTheFileIsDurable(const Save& save, absl::Duration patience) {
  absl::Notification other_returned;
  SlowDisk disk(other_returned, patience);
  const auto outcomes = RunRanks(2, [&](ProcessGroup& group) {
    const absl::Status saved = save(group, disk);
    if (!group.is_main()) other_returned.Notify();
    return saved;
  });
  EXPECT_THAT(outcomes, Each(IsOk()));
  return disk.returned_too_early();
}

TEST_F(MainOnlySaverTest, NobodyReturnsBeforeTheFileIsDurable) {
  // However long the others were given, they must not have returned; a fifth of a second is what we can wait for
  // nothing.
  EXPECT_FALSE(SomebodyReturnsBeforeTheFileIsDurable(SaveWell, absl::Milliseconds(200)));
}

TEST_F(MainOnlySaverTest, TheDetectorFindsAMissingSecondMeeting) {
  EXPECT_TRUE(SomebodyReturnsBeforeTheFileIsDurable(SaveWithoutSecondMeeting, absl::Seconds(30)));
}

// How many ranks changed anything on a disk.
int NumWriters(const Save& save) {
  std::vector<std::unique_ptr<CrashFileSystem>> disks;
  for (int rank = 0; rank < 3; ++rank) disks.push_back(std::make_unique<CrashFileSystem>());
  EXPECT_THAT(RunRanks(3, [&](ProcessGroup& group) { return save(group, *disks[group.rank()]); }), Each(IsOk()));
  int writers = 0;
  for (const auto& disk : disks) writers += disk->num_operations() > 0;
  return writers;
}

TEST_F(MainOnlySaverTest, OneProcessOfTheJobWrites) { EXPECT_EQ(NumWriters(SaveWell), 1); }

TEST_F(MainOnlySaverTest, TheDetectorFindsASaveOnEveryRank) { EXPECT_EQ(NumWriters(SaveOnEveryRank), 3); }

}  // namespace
}  // namespace cohort
