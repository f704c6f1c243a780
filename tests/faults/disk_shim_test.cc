#include "cohort/tests/faults/disk_shim.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>

#include "cohort/checkpoint/testing/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DiskShimTest : public ::testing::Test {
 protected:
  int Create(const std::string& name) { return open((dir_ + "/" + name).c_str(), O_WRONLY | O_CREAT, 0600); }

  const std::string dir_ = FreshDirectory();
};

TEST_F(DiskShimTest, SeesEveryCallBelowTheDirectoryInOrder) {
  DiskShim shim(dir_);
  ASSERT_EQ(mkdir((dir_ + "/d").c_str(), 0700), 0);
  const int fd = Create("d/f");
  ASSERT_EQ(write(fd, "abc", 3), 3);
  ASSERT_EQ(pwrite(fd, "A", 1, 0), 1);
  ASSERT_EQ(fsync(fd), 0);
  ASSERT_EQ(close(fd), 0);
  ASSERT_EQ(rename((dir_ + "/d/f").c_str(), (dir_ + "/d/g").c_str()), 0);
  const int directory = open((dir_ + "/d").c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(fsync(directory), 0);
  ASSERT_EQ(close(open((dir_ + "/d/g").c_str(), O_RDWR)), 0);
  ASSERT_EQ(unlink((dir_ + "/d/g").c_str()), 0);
  ASSERT_EQ(rmdir((dir_ + "/d").c_str()), 0);
  EXPECT_THAT(shim.Names(), ElementsAre("mkdir d", "create f", "write f", "write f", "fsync f", "close f", "rename g",
                                        "fsync directory d", "open for writing g", "close g", "unlink g", "rmdir d"));
}

TEST_F(DiskShimTest, SeesSymlinksAndTruncation) {
  DiskShim shim(dir_);
  const int fd = Create("f");
  ASSERT_EQ(write(fd, "abc", 3), 3);
  ASSERT_EQ(ftruncate(fd, 1), 0);
  ASSERT_EQ(symlink("f", (dir_ + "/link").c_str()), 0);
  EXPECT_EQ(ReadFile(dir_ + "/link"), "a");
  EXPECT_THAT(shim.Names(), ElementsAre("create f", "write f", "truncate f", "symlink link"));
}

TEST_F(DiskShimTest, ShowsRandomNamesAsWhatTheyAre) {
  DiskShim shim(dir_);
  for (const std::string kind : {"tmp", "step", "removed", "latest"}) Create(".cohort-" + kind + "-1-2-3");
  EXPECT_THAT(shim.Names(), ElementsAre("create TEMPORARY", "create STEP", "create REMOVED", "create LATEST"));
}

TEST_F(DiskShimTest, IsFullAtTheByteThatItIsTold) {
  DiskShim shim(dir_);
  const int fd = Create("f");
  const int other = Create("g");
  shim.LimitBytes(5);
  EXPECT_EQ(write(fd, "ab", 2), 2);
  EXPECT_EQ(pwrite(other, "cd", 2, 0), 2);
  EXPECT_EQ(write(fd, "efg", 3), 1);
  EXPECT_EQ(write(fd, "fg", 2), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(write(fd, "", 0), 0);
  EXPECT_EQ(ReadFile(dir_ + "/f"), "abe");
  EXPECT_EQ(ReadFile(dir_ + "/g"), "cd");
  WriteFile(dir_ + "-elsewhere", "is not limited");
  EXPECT_EQ(ReadFile(dir_ + "-elsewhere"), "is not limited");
}

TEST_F(DiskShimTest, KillsAfterTheByteThatItIsTold) {
  const pid_t child = fork();
  if (child == 0) {
    DiskShim shim(dir_);
    shim.LimitBytes(2, [] { return raise(SIGKILL); });
    const int fd = Create("f");
    for (std::string_view rest = "abc"; !rest.empty();) rest.remove_prefix(write(fd, rest.data(), rest.size()));
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(ReadFile(dir_ + "/f"), "ab");
}

TEST_F(DiskShimTest, SeesRelativePaths) {
  const std::string before = std::filesystem::current_path();
  ASSERT_EQ(chdir(dir_.c_str()), 0);
  DiskShim shim(dir_);
  ASSERT_GE(open("f", O_WRONLY | O_CREAT, 0600), 0);
  ASSERT_EQ(chdir(before.c_str()), 0);
  EXPECT_THAT(shim.Names(), ElementsAre("create f"));
}

TEST_F(DiskShimTest, IgnoresTheRestOfTheMachine) {
  DiskShim shim(dir_ + "/inner");
  const int fd = Create("inner-not");
  ASSERT_EQ(write(fd, "x", 1), 1);
  EXPECT_THAT(shim.Names(), IsEmpty());
}

TEST_F(DiskShimTest, FailsTheCallThatItIsTold) {
  DiskShim shim(dir_);
  shim.Before("write", 2, [](const DiskCall&) { return ENOSPC; });
  const int fd = Create("f");
  EXPECT_EQ(write(fd, "a", 1), 1);
  EXPECT_EQ(write(fd, "b", 1), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(write(fd, "c", 1), 1);
  EXPECT_EQ(ReadFile(dir_ + "/f"), "ac");
  EXPECT_EQ(shim.Calls()[2].error, ENOSPC);
}

TEST_F(DiskShimTest, CallsAHookBeforeEachCallIfItIsTold) {
  DiskShim shim(dir_);
  int num_writes = 0;
  shim.Before("write", 0, [&](const DiskCall&) { return ++num_writes == 3 ? EIO : 0; });
  const int fd = Create("f");
  EXPECT_EQ(write(fd, "a", 1), 1);
  EXPECT_EQ(write(fd, "b", 1), 1);
  EXPECT_EQ(write(fd, "c", 1), -1);
  EXPECT_EQ(write(fd, "d", 1), 1);
  EXPECT_EQ(num_writes, 4);
}

TEST_F(DiskShimTest, KillsAtTheCallThatItIsTold) {
  const pid_t child = fork();
  if (child == 0) {
    DiskShim shim(dir_);
    shim.Before("", 3, [](const DiskCall&) { return raise(SIGKILL); });
    const int fd = Create("f");
    (void)!write(fd, "a", 1);
    (void)!write(fd, "b", 1);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_EQ(ReadFile(dir_ + "/f"), "a");
}

}  // namespace
}  // namespace cohort::testing
