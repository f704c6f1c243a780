// A process that saves is killed at every call that it makes to the disk, one run for each, and in the middle of every
// write. After each the path holds the old file or the new one, and the next save works and leaves nothing else.

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/tests/faults/disk_shim.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::cohort::testing::DiskCall;
using ::cohort::testing::DiskShim;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::testing::ElementsAre;

// What one Append writes.
constexpr size_t kPiece = 64 << 10;

using Save = std::function<absl::Status(const std::string& path, std::string_view contents)>;

absl::Status SaveWell(const std::string& path, std::string_view contents) {
  const auto group = ProcessGroup::WorldOfOne();
  return MainOnlySaver(group.get())
      .Save(path,
            [&](WritableFile& file) -> absl::Status {
              for (; !contents.empty(); contents.remove_prefix(std::min<size_t>(contents.size(), kPiece))) {
                ABSL_RETURN_IF_ERROR(file.Append(contents.substr(0, kPiece)));
              }
              return absl::OkStatus();
            })
      .status();
}

// How a child ended that saves `contents` and is killed at its `n`-th call to the disk.
enum class End { kSaved, kKilled, kFailed };

End SaveAndBeKilled(const Save& save, const std::string& dir, std::string_view contents, int n, bool in_mid_write) {
  const pid_t child = fork();
  if (child == 0) {
    DiskShim shim(dir);
    shim.Before(in_mid_write ? "write" : "", n, [&](const DiskCall& call) {
      if (in_mid_write) {
        // The kernel stops a write between two pages.
        const int fd = open(call.path.c_str(), O_WRONLY | O_APPEND);
        (void)!syscall(SYS_write, fd, contents.data(), 4096);
      }
      return raise(SIGKILL);
    });
    _exit(save(dir + "/m.pt", contents).ok() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return End::kKilled;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? End::kSaved : End::kFailed;
}

// What is wrong after the `n`-th call, or nullopt once the save makes fewer calls.
struct Wrongs {
  int num_kills = 0;
  std::string first;
};

Wrongs KillAtEveryCall(const Save& save, std::optional<std::string> old, bool in_mid_write) {
  const std::string fresh = std::string(3 * kPiece, 'n') + "end";
  const std::string dir = FreshDirectory();
  Wrongs wrongs;
  for (int n = 1;; ++n) {
    if (old.has_value()) {
      EXPECT_THAT(SaveWell(dir + "/m.pt", *old), IsOk());
    } else {
      unlink((dir + "/m.pt").c_str());
    }
    const End end = SaveAndBeKilled(save, dir, fresh, n, in_mid_write);
    EXPECT_NE(end, End::kFailed);
    if (end != End::kKilled) return wrongs;
    ++wrongs.num_kills;
    const std::string found = ReadFile(dir + "/m.pt");
    if (found != old.value_or("<absent>") && found != fresh && wrongs.first.empty()) {
      wrongs.first = absl::StrCat("killed at call ", n, ": found ", found.size(), " bytes");
    }
    if (absl::Status again = SaveWell(dir + "/m.pt", "again"); !again.ok()) wrongs.first = again.ToString();
    EXPECT_THAT(NamesIn(dir), ElementsAre("m.pt"));
  }
}

TEST(KilledSaverTest, TheOldFileOrTheNewOneIsThereWhereverItIsKilled) {
  const Wrongs wrongs = KillAtEveryCall(SaveWell, std::string(2 * kPiece, 'o'), /*in_mid_write=*/false);
  EXPECT_EQ(wrongs.first, "");
  EXPECT_GE(wrongs.num_kills, 8);  // create, four writes, fsync, rename, fsync of the directory
}

TEST(KilledSaverTest, AFirstSaveLeavesNothingOrTheWholeFile) {
  EXPECT_EQ(KillAtEveryCall(SaveWell, std::nullopt, /*in_mid_write=*/false).first, "");
}

TEST(KilledSaverTest, TheOldFileIsThereIfItIsKilledInMidWrite) {
  const Wrongs wrongs = KillAtEveryCall(SaveWell, "old", /*in_mid_write=*/true);
  EXPECT_EQ(wrongs.first, "");
  EXPECT_EQ(wrongs.num_kills, 4);
}

TEST(KilledSaverTest, TheDetectorFindsAnInPlaceWrite) {
  const Save in_place = [](const std::string& path, std::string_view contents) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)!write(fd, contents.data(), contents.size());
    fsync(fd);
    close(fd);
    return absl::OkStatus();
  };
  EXPECT_THAT(KillAtEveryCall(in_place, "old", /*in_mid_write=*/false).first, ::testing::HasSubstr("found 0 bytes"));
}

}  // namespace
}  // namespace cohort
