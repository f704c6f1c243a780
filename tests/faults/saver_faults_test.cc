// The saver on ranks that are processes, over gloo, on a real disk that is slow, full, broken or in an odd state. Every
// TEST body runs on every rank.

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/tensor_collectives.h"
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
using ::cohort::testing::MonotonicNanoseconds;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::cohort::testing::SharedGroup;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The ranks are as if on nodes of two: local ranks 0, 1, 0, 1.
class TwoRanksANode : public ::testing::Environment {
  void SetUp() override {
    const char* const rank = std::getenv("RANK");
    int number = 0;
    ASSERT_TRUE(rank != nullptr && absl::SimpleAtoi(rank, &number));
    setenv("LOCAL_RANK", absl::StrCat(number % 2).c_str(), 1);
    setenv("LOCAL_WORLD_SIZE", "2", 1);
  }
};
const auto* const g_two_ranks_a_node = ::testing::AddGlobalTestEnvironment(new TwoRanksANode);

class SaverFaultsTest : public ::testing::Test {
 protected:
  absl::StatusOr<SaveReport> Save(const std::string& path, std::string_view contents) {
    return MainOnlySaver(&group_, {.timeout = absl::Seconds(30), .base_directory = dir_})
        .Save(path, [&](WritableFile& file) { return file.Append(contents); });
  }

  // What every rank brings, on the main rank; nothing elsewhere.
  std::vector<std::string> Gather(std::string mine) {
    const auto all = group_.GatherBytes("compare", std::move(mine), 1 << 20);
    EXPECT_THAT(all, IsOk());
    return all.value_or(std::vector<std::string>());
  }

  void ExpectSameOnAllRanks(const std::string& mine) {
    const std::vector<std::string> all = Gather(mine);
    EXPECT_THAT(all, Each(mine));
  }

  // A collective of the user's, and a save that works.
  void ExpectUsable() {
    const at::Tensor rank = at::full({1}, group_.rank(), at::kLong);
    ASSERT_THAT(AllReduceSum(group_, {rank}), IsOk());
    EXPECT_EQ(rank.item<int64_t>(), group_.world_size() * (group_.world_size() - 1) / 2);
    ASSERT_THAT(Save("usable.pt", "usable"), IsOk());
    EXPECT_EQ(ReadFile(dir_ + "/usable.pt"), "usable");
    Meet();
    if (group_.is_main()) std::filesystem::remove(dir_ + "/usable.pt");
    Meet();
  }

  void Meet() { ASSERT_THAT(group_.Agree("meet", absl::OkStatus()), IsOk()); }

  // The same error on every rank, nothing touched, and the group is usable.
  void ExpectRefused(const std::string& path, const std::string& why) {
    const std::vector<std::string> before = NamesIn(dir_);
    Meet();
    const absl::Status refused = Save(path, "new").status();
    EXPECT_THAT(refused, StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("rank 0: "), HasSubstr(why))));
    ExpectSameOnAllRanks(refused.ToString(absl::StatusToStringMode::kWithNoExtraData));
    EXPECT_EQ(NamesIn(dir_), before);
    ExpectUsable();
  }

  std::string SharedDirectory() {
    const auto directory = group_.BroadcastBytes("directory", group_.is_main() ? FreshDirectory() : "");
    EXPECT_THAT(directory, IsOk());
    return directory.value_or("");
  }

  ProcessGroup& group_ = SharedGroup();
  const std::string dir_ = SharedDirectory();
};

TEST_F(SaverFaultsTest, ASlowSaveNeverPairsWithTheUsersCollectives) {
  DiskShim shim(dir_);
  shim.Before("write", 1, [](const DiskCall&) {
    absl::SleepFor(absl::Seconds(2));  // a slow disk
    return 0;
  });
  Meet();
  for (int step = 0; step < 50; ++step) {
    const std::string contents = absl::StrCat("step ", step);
    const absl::Time start = absl::Now();
    ASSERT_THAT(Save("m.pt", contents), IsOk());
    if (step == 0) {
      EXPECT_GE(absl::Now() - start, absl::Seconds(2));
    }
    EXPECT_EQ(ReadFile(dir_ + "/m.pt"), contents);
    const at::Tensor sum = at::full({1}, step * 10 + group_.rank(), at::kLong);
    ASSERT_THAT(AllReduceSum(group_, {sum}), IsOk());
    EXPECT_EQ(sum.item<int64_t>(),
              group_.world_size() * (step * 10) + group_.world_size() * (group_.world_size() - 1) / 2);
  }
}

TEST_F(SaverFaultsTest, OnlyRankZeroOfTheJobOpensAnythingForWriting) {
  EXPECT_EQ(group_.local_rank(), group_.rank() % 2);
  EXPECT_EQ(group_.local_world_size(), 2);
  const std::vector<std::string> mains = Gather(absl::StrCat(group_.is_main()));
  if (group_.is_main()) {
    EXPECT_EQ(std::count(mains.begin(), mains.end(), "1"), 1);
  }

  DiskShim shim(dir_);
  uint64_t previous = 0;
  for (int i = 0; i < 20; ++i) {
    ASSERT_THAT(Save("m.pt", absl::StrCat("of rank ", group_.rank())), IsOk());
    struct stat info;
    ASSERT_EQ(stat((dir_ + "/m.pt").c_str(), &info), 0);
    EXPECT_NE(info.st_ino, previous);
    previous = info.st_ino;
    Meet();  // before the next save replaces the file
  }
  EXPECT_EQ(ReadFile(dir_ + "/m.pt"), "of rank 0");
  const std::vector<std::string> calls = shim.Names();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "create TEMPORARY"), group_.is_main() ? 20 : 0);
  if (!group_.is_main()) {
    EXPECT_THAT(calls, IsEmpty());
  }
}

TEST_F(SaverFaultsTest, EveryRankHearsThatTheTargetLiesUnderAFile) {
  if (group_.is_main()) WriteFile(dir_ + "/file", "precious");
  Meet();
  ExpectRefused("file/m.pt", "lies under \"" + dir_ + "/file\", which is not a directory");
  ExpectRefused(std::string(300, 'n'), "has a name of 300 bytes; at most 255 are allowed");
}

TEST_F(SaverFaultsTest, MakesWhatIsMissingAndReturnsTheSameAbsolutePath) {
  DiskShim shim(dir_);
  for (const std::string path : {"m.pt", "a/b/c/d/m.pt", "a/b/c/d/m.pt", "x/../y/./m.pt"}) {
    const auto report = Save(path, path);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->path, dir_ + "/" + (path.starts_with("x") ? "y/m.pt" : path));
    EXPECT_EQ(ReadFile(report->path), path);
    ExpectSameOnAllRanks(report->path);
  }
  if (!group_.is_main()) {
    EXPECT_THAT(shim.Names(), IsEmpty());
  }
}

TEST_F(SaverFaultsTest, SavesIntoADirectoryThatComesAndGoes) {
  // Another process, the last rank's, makes and removes a/b all the time.
  std::atomic<bool> stop = false;
  std::thread other;
  const bool is_last = group_.rank() == group_.world_size() - 1;
  if (is_last) {
    other = std::thread([&] {
      std::error_code ignored;
      while (!stop) {
        std::filesystem::create_directories(dir_ + "/a/b", ignored);
        std::filesystem::remove(dir_ + "/a/b", ignored);
      }
    });
  }
  int saved = 0;
  for (int i = 0; i < 50; ++i) {
    const auto report = Save("a/b/c/d/m.pt", "new");
    ExpectSameOnAllRanks(report.status().ToString(absl::StatusToStringMode::kWithNoExtraData));
    if (report.ok()) {
      ++saved;
      EXPECT_EQ(ReadFile(dir_ + "/a/b/c/d/m.pt"), "new");
    } else {
      EXPECT_THAT(report.status().message(), Not(HasSubstr("exists")));
    }
    Meet();
    std::error_code ignored;  // the other one may be quicker
    if (group_.is_main()) std::filesystem::remove_all(dir_ + "/a", ignored);
    Meet();
  }
  EXPECT_GT(saved, 0);
  stop = true;
  if (is_last) other.join();
}

TEST_F(SaverFaultsTest, RefusesWhatIsNotAPlainFileAndTouchesNothing) {
  if (group_.is_main()) {
    std::filesystem::create_directory(dir_ + "/full");
    WriteFile(dir_ + "/full/precious", "precious");
    std::filesystem::create_symlink("loop", dir_ + "/loop");
  }
  Meet();
  ExpectRefused("", "is empty; name a file");
  ExpectRefused("/", "names a directory");
  ExpectRefused(".", "names a directory");
  ExpectRefused("dir/", "names a directory");
  ExpectRefused("full", "names a directory");
  ExpectRefused("loop", "symlinks");
  ExpectRefused("/dev/null", "neither a file nor a directory");
  EXPECT_THAT(NamesIn(dir_ + "/full"), ElementsAre("precious"));
}

TEST_F(SaverFaultsTest, KeepsASymlinkAndWritesWhereItPoints) {
  if (group_.is_main()) {
    std::filesystem::create_directory(dir_ + "/real");
    WriteFile(dir_ + "/real/old.pt", "old");
    std::filesystem::create_symlink("real/old.pt", dir_ + "/link.pt");
    std::filesystem::create_symlink("real/not_yet.pt", dir_ + "/dangling.pt");
  }
  Meet();
  ASSERT_THAT(Save("link.pt", "new"), IsOk());
  ASSERT_THAT(Save("dangling.pt", "first"), IsOk());
  EXPECT_TRUE(std::filesystem::is_symlink(dir_ + "/link.pt") && std::filesystem::is_symlink(dir_ + "/dangling.pt"));
  EXPECT_EQ(ReadFile(dir_ + "/real/old.pt"), "new");
  EXPECT_EQ(ReadFile(dir_ + "/real/not_yet.pt"), "first");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("dangling.pt", "link.pt", "real"));
}

// `cause`, for `path`, on every rank; the old file intact, no litter; and the next save works.
class FullDiskTest : public SaverFaultsTest {
 protected:
  void SetUp() override { ASSERT_THAT(Save("m.pt", old_), IsOk()); }

  void ExpectExhausted(std::string_view contents, const std::string& cause) {
    const absl::Status full = Save("m.pt", contents).status();
    EXPECT_THAT(full, StatusIs(absl::StatusCode::kResourceExhausted,
                               AllOf(HasSubstr("rank 0: cannot save \"" + dir_ + "/m.pt\""), HasSubstr(cause),
                                     HasSubstr("bytes had been written"))));
    ExpectSameOnAllRanks(full.ToString(absl::StatusToStringMode::kWithNoExtraData));
    EXPECT_EQ(ReadFile(dir_ + "/m.pt"), old_);
    EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
    Meet();
  }

  void ExpectRecovered(std::string_view contents) {
    ASSERT_THAT(Save("m.pt", contents), IsOk());
    EXPECT_EQ(ReadFile(dir_ + "/m.pt"), contents);
    ExpectUsable();
  }

  const std::string old_ = std::string(3 << 20, 'o');
};

TEST_F(FullDiskTest, EveryRankHearsOfASizeLimit) {
  const std::string large(20 << 20, 'n');
  rlimit before = {};
  if (group_.is_main()) {
    signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit small = {.rlim_cur = 8 << 20, .rlim_max = before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ExpectExhausted(large, "File too large");
  if (group_.is_main()) {
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  }
  ExpectRecovered(large);
}

TEST_F(FullDiskTest, EveryRankHearsOfAFullDiskAndOfAQuota) {
  for (const int error : {ENOSPC, EDQUOT}) {
    DiskShim shim(dir_);
    shim.Before("write", 2, [=](const DiskCall&) { return error; });
    ExpectExhausted(std::string(20 << 20, 'n'), std::generic_category().message(error));
  }
  ExpectRecovered("new");
}

TEST_F(SaverFaultsTest, TheFileIsDurableBeforeAnyRankReturns) {
  DiskShim shim(dir_);
  // The last sync is slow, so that a rank which does not wait for it would return before it.
  shim.Before("fsync directory", 3, [](const DiskCall&) {
    absl::SleepFor(absl::Milliseconds(300));
    return 0;
  });
  ASSERT_THAT(Save("a/b/m.pt", "new"), IsOk());
  const std::vector<std::string> returned = Gather(absl::StrCat(MonotonicNanoseconds()));
  if (!group_.is_main()) return;
  const std::string top = dir_.substr(dir_.rfind('/') + 1);
  EXPECT_THAT(shim.Names(),
              ElementsAre("mkdir b", "mkdir a", "mkdir b", "create TEMPORARY", "write TEMPORARY", "fsync TEMPORARY",
                          "close TEMPORARY", "rename m.pt", "fsync directory b", "close b", "fsync directory a",
                          "close a", "fsync directory " + top, "close " + top, "close m.pt"));
  int64_t durable = 0;
  for (const DiskCall& call : shim.Calls()) {
    if (call.operation == "fsync directory") durable = call.ended_ns;
  }
  for (const std::string& rank : returned) {
    int64_t at = 0;
    ASSERT_TRUE(absl::SimpleAtoi(rank, &at));
    EXPECT_GT(at, durable);
  }
}

TEST_F(SaverFaultsTest, AnErrorOfSyncIsFinalAndEveryRankHearsOfIt) {
  ASSERT_THAT(Save("m.pt", "old"), IsOk());
  Meet();
  {
    DiskShim shim(dir_);
    shim.Before("fsync", 1, [](const DiskCall&) { return EIO; });
    const absl::Status broken = Save("m.pt", "new").status();
    EXPECT_THAT(broken, StatusIs(absl::StatusCode::kUnavailable,
                                 AllOf(HasSubstr("rank 0: "), HasSubstr("fsync"), HasSubstr("Input/output error"))));
    ExpectSameOnAllRanks(broken.ToString(absl::StatusToStringMode::kWithNoExtraData));
    EXPECT_THAT(shim.Names(), Not(::testing::Contains(HasSubstr("rename"))));
  }
  EXPECT_EQ(ReadFile(dir_ + "/m.pt"), "old");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
  ExpectUsable();
}

}  // namespace
}  // namespace cohort
