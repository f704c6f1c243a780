#include "cohort/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/testing/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

class FileSystemTest : public ::testing::Test {
 protected:
  std::unique_ptr<OutputFile> Create(const std::string& path, std::optional<int> permissions = std::nullopt) {
    absl::StatusOr<std::unique_ptr<OutputFile>> file = fs_.Create(path, permissions);
    EXPECT_THAT(file, IsOk());
    return file.ok() ? *std::move(file) : nullptr;
  }

  FileSystem& fs_ = *FileSystem::Posix();
  const std::string dir_ = FreshDirectory();
};

TEST_F(FileSystemTest, WritesWhatIsAppended) {
  const std::string big(20 << 20, 'x');  // several pieces
  auto file = Create(dir_ + "/f");
  ASSERT_THAT(file->Append("head "), IsOk());
  ASSERT_THAT(file->Append(""), IsOk());
  ASSERT_THAT(file->Append(big), IsOk());
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/f"), "head " + big);
}

TEST_F(FileSystemTest, NeverOpensWhatExists) {
  WriteFile(dir_ + "/old", "old");
  std::filesystem::create_symlink(dir_ + "/elsewhere", dir_ + "/link");
  EXPECT_THAT(fs_.Create(dir_ + "/old", std::nullopt), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(fs_.Create(dir_ + "/link", std::nullopt), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadFile(dir_ + "/old"), "old");
  EXPECT_THAT(NamesIn(dir_), UnorderedElementsAre("old", "link"));
}

TEST_F(FileSystemTest, AppliesTheUmaskOnlyWithoutGivenPermissions) {
  const mode_t before = umask(027);
  Create(dir_ + "/new");
  Create(dir_ + "/given", 0666);
  umask(before);
  EXPECT_EQ(fs_.Inspect(dir_ + "/new")->permissions, 0640);
  EXPECT_EQ(fs_.Inspect(dir_ + "/given")->permissions, 0666);
}

TEST_F(FileSystemTest, IsNotInheritedByPrograms) {
  const std::unique_ptr<OutputFile> file = Create(dir_ + "/f");
  int open_descriptors = 0;
  for (int fd = 3; fd < 64; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags == -1) continue;
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    std::error_code error;
    if (std::filesystem::read_symlink(link, error) != dir_ + "/f") continue;
    ++open_descriptors;
    EXPECT_TRUE(flags & FD_CLOEXEC);
  }
  EXPECT_EQ(open_descriptors, 1);
}

TEST_F(FileSystemTest, TellsTypesApartWithoutFollowing) {
  WriteFile(dir_ + "/file", "");
  std::filesystem::create_symlink("file", dir_ + "/link");
  mkfifo((dir_ + "/fifo").c_str(), 0600);
  EXPECT_EQ(fs_.Inspect(dir_)->type, FileType::kDirectory);
  EXPECT_EQ(fs_.Inspect(dir_ + "/file")->type, FileType::kRegular);
  EXPECT_EQ(fs_.Inspect(dir_ + "/link")->type, FileType::kSymlink);
  EXPECT_EQ(fs_.Inspect(dir_ + "/fifo")->type, FileType::kOther);
  EXPECT_EQ(*fs_.ReadLink(dir_ + "/link"), "file");
  EXPECT_THAT(*fs_.List(dir_), UnorderedElementsAre("file", "link", "fifo"));
}

TEST_F(FileSystemTest, RenamesOverAnExistingFileAndRemoves) {
  WriteFile(dir_ + "/a", "a");
  WriteFile(dir_ + "/b", "b");
  EXPECT_THAT(fs_.Rename(dir_ + "/a", dir_ + "/b"), IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/b"), "a");
  EXPECT_THAT(fs_.SyncDirectory(dir_), IsOk());
  EXPECT_THAT(fs_.Remove(dir_ + "/b"), IsOk());
  EXPECT_THAT(NamesIn(dir_), UnorderedElementsAre());
}

TEST_F(FileSystemTest, NamesTheOperationThePathAndTheCause) {
  WriteFile(dir_ + "/file", "");
  EXPECT_THAT(fs_.MakeDirectory(dir_),
              StatusIs(absl::StatusCode::kAlreadyExists, "mkdir \"" + dir_ + "\": File exists"));
  EXPECT_THAT(fs_.MakeDirectory(dir_ + "/no/where"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("No such file")));
  EXPECT_THAT(fs_.Create(dir_ + "/file/below", std::nullopt),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Not a directory")));
  EXPECT_THAT(fs_.Create(dir_ + "/" + std::string(300, 'n'), std::nullopt),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("File name too long")));
  EXPECT_THAT(fs_.Inspect(dir_ + "/none"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("stat \"" + dir_ + "/none\"")));
  EXPECT_THAT(fs_.Remove(dir_ + "/none"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(fs_.Rename(dir_ + "/none", dir_ + "/x"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(fs_.SyncDirectory(dir_ + "/file"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fs_.List(dir_ + "/file"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fs_.ReadLink(dir_ + "/file"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(FileSystemTest, ReportsASizeLimitAsExhausted) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  auto file = Create(dir_ + "/f");
  const absl::Status appended = file->Append(std::string(2 << 20, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(appended, StatusIs(absl::StatusCode::kResourceExhausted,
                                 AllOf(HasSubstr("write"), HasSubstr("File too large"), HasSubstr("ulimit -f"))));
}

TEST_F(FileSystemTest, RemovesAFileOnlyOnceItsWriterIsGone) {
  auto file = Create(dir_ + "/f");
  EXPECT_THAT(fs_.RemoveIfAbandoned(dir_ + "/f"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
  EXPECT_EQ(ReadFile(dir_ + "/f"), "");
  file.reset();
  EXPECT_THAT(fs_.RemoveIfAbandoned(dir_ + "/f"), IsOk());
  EXPECT_THAT(NamesIn(dir_), UnorderedElementsAre());
}

TEST_F(FileSystemTest, KeepsAFileInUseWhileItIsSynced) {
  auto file = Create(dir_ + "/f");
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_THAT(fs_.RemoveIfAbandoned(dir_ + "/f"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(FileSystemTest, DoesNotTakeOtherThingsForAbandoned) {
  WriteFile(dir_ + "/file", "precious");
  std::filesystem::create_symlink("file", dir_ + "/link");
  mkfifo((dir_ + "/fifo").c_str(), 0600);
  EXPECT_FALSE(fs_.RemoveIfAbandoned(dir_ + "/link").ok());
  EXPECT_FALSE(fs_.RemoveIfAbandoned(dir_ + "/fifo").ok());
  EXPECT_FALSE(fs_.RemoveIfAbandoned(dir_).ok());
  EXPECT_EQ(ReadFile(dir_ + "/link"), "precious");
}

TEST_F(FileSystemTest, TellsTheLengthOfAFile) {
  WriteFile(dir_ + "/file", "12345");
  std::filesystem::create_symlink("file", dir_ + "/link");
  EXPECT_EQ(fs_.Inspect(dir_ + "/file")->num_bytes, 5);
  EXPECT_EQ(fs_.Inspect(dir_ + "/link")->num_bytes, 0);
  EXPECT_EQ(fs_.Inspect(dir_)->num_bytes, 0);
}

TEST_F(FileSystemTest, ReadsASmallFileAlsoThroughSymlinks) {
  const std::string several_pieces(200'000, 'x');
  WriteFile(dir_ + "/file", several_pieces);
  WriteFile(dir_ + "/empty", "");
  std::filesystem::create_symlink("file", dir_ + "/link");
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/link", 200'000), IsOkAndHolds(several_pieces));
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/file", std::numeric_limits<int64_t>::max()), IsOkAndHolds(several_pieces));
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/empty", 0), IsOkAndHolds(""));
}

TEST_F(FileSystemTest, ReadsNoMoreThanItIsAllowed) {
  WriteFile(dir_ + "/file", "12345");
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/file", 4),
              StatusIs(absl::StatusCode::kOutOfRange, "\"" + dir_ + "/file\" has more than 4 bytes"));
  // However long a file is, and whatever it says of its length: this one has no end and says 0.
  WriteFile(dir_ + "/huge", "");
  std::filesystem::resize_file(dir_ + "/huge", uint64_t{1} << 40);
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/huge", 1000), StatusIs(absl::StatusCode::kOutOfRange));
  EXPECT_THAT(fs_.ReadSmallFile("/proc/self/status", 10), StatusIs(absl::StatusCode::kOutOfRange));
}

TEST_F(FileSystemTest, ReadsNothingThatIsNoFileAndWaitsForNobody) {
  mkfifo((dir_ + "/fifo").c_str(), 0600);
  std::filesystem::create_symlink("loop", dir_ + "/loop");
  for (const std::string& path : {dir_ + "/fifo", dir_, std::string("/dev/zero")}) {
    EXPECT_THAT(fs_.ReadSmallFile(path, 1000),
                StatusIs(absl::StatusCode::kInvalidArgument, "\"" + path + "\" is not a regular file"));
  }
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/loop", 1000), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fs_.ReadSmallFile(dir_ + "/none", 1000), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FileSystemTest, MakesASymlinkAndReplacesOneByRenaming) {
  WriteFile(dir_ + "/a", "a");
  WriteFile(dir_ + "/b", "b");
  ASSERT_THAT(fs_.MakeSymlink("a", dir_ + "/latest"), IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/latest"), "a");
  EXPECT_THAT(fs_.MakeSymlink("b", dir_ + "/latest"),
              StatusIs(absl::StatusCode::kAlreadyExists, "symlink \"" + dir_ + "/latest\": File exists"));
  ASSERT_THAT(fs_.MakeSymlink("b", dir_ + "/next"), IsOk());
  ASSERT_THAT(fs_.Rename(dir_ + "/next", dir_ + "/latest"), IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/latest"), "b");
  EXPECT_THAT(fs_.Remove(dir_ + "/latest"), IsOk());
  EXPECT_THAT(NamesIn(dir_), UnorderedElementsAre("a", "b"));
}

TEST_F(FileSystemTest, RemovesOnlyAnEmptyDirectory) {
  std::filesystem::create_directory(dir_ + "/d");
  WriteFile(dir_ + "/d/f", "");
  EXPECT_THAT(fs_.RemoveDirectory(dir_ + "/d"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Directory not empty")));
  EXPECT_THAT(fs_.RemoveDirectory(dir_ + "/d/f"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(fs_.Remove(dir_ + "/d/f"), IsOk());
  EXPECT_THAT(fs_.RemoveDirectory(dir_ + "/d"), IsOk());
  EXPECT_THAT(fs_.RemoveDirectory(dir_ + "/d"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(FileSystemTest, LocksOnceAndTellsTheSecondWhoHasIt) {
  WriteFile(dir_ + "/lock", "a text of before that is longer than the new one");
  auto first = fs_.Lock(dir_ + "/lock", "the first");
  ASSERT_THAT(first, IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/lock"), "the first");
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "the second"),
              StatusIs(absl::StatusCode::kFailedPrecondition, "\"" + dir_ + "/lock\" is locked by \"the first\""));
  EXPECT_EQ(ReadFile(dir_ + "/lock"), "the first");
  first->reset();
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "the third"), IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/lock"), "the third");
}

TEST_F(FileSystemTest, QuotesWhatTheOwnerOfALockWrote) {
  auto silent = fs_.Lock(dir_ + "/silent", "");
  EXPECT_THAT(fs_.Lock(dir_ + "/silent", ""), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not said")));
  auto noisy = fs_.Lock(dir_ + "/noisy", std::string(5'000, '\n'));
  const absl::Status refused = fs_.Lock(dir_ + "/noisy", "").status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("locked by \"\\n\\n")));
  EXPECT_THAT(refused.message(), Not(HasSubstr("\n")));
  EXPECT_LT(refused.message().size(), 2'000);
}

TEST_F(FileSystemTest, LocksWhatIsThereNowNotWhatWasRemoved) {
  auto first = fs_.Lock(dir_ + "/lock", "first");
  std::filesystem::remove(dir_ + "/lock");
  auto second = fs_.Lock(dir_ + "/lock", "second");
  ASSERT_THAT(second, IsOk());
  first->reset();
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "third"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("second")));
}

TEST_F(FileSystemTest, ALockKnowsWhetherItsFileIsStillInPlace) {
  auto lock = fs_.Lock(dir_ + "/lock", "us");
  ASSERT_THAT(lock, IsOk());
  EXPECT_TRUE((*lock)->IsInPlace());
  ASSERT_THAT(fs_.Rename(dir_ + "/lock", dir_ + "/moved"), IsOk());
  EXPECT_FALSE((*lock)->IsInPlace());
  ASSERT_THAT(fs_.Lock(dir_ + "/lock", "another"), IsOk());
  EXPECT_FALSE((*lock)->IsInPlace());
}

// A copy of the directory made of hard links, or somebody's trick.
TEST_F(FileSystemTest, AFileWithAnotherNameIsNotWrittenIntoByALock) {
  WriteFile(dir_ + "/theirs", "precious");
  ASSERT_EQ(link((dir_ + "/theirs").c_str(), (dir_ + "/lock").c_str()), 0);
  auto lock = fs_.Lock(dir_ + "/lock", "us");
  ASSERT_THAT(lock, IsOk());
  EXPECT_EQ(ReadFile(dir_ + "/theirs"), "precious");
  EXPECT_EQ(ReadFile(dir_ + "/lock"), "us");
}

TEST_F(FileSystemTest, RemovesNothingThroughASymlink) {
  ASSERT_THAT(fs_.MakeDirectory(dir_ + "/real"), IsOk());
  WriteFile(dir_ + "/real/file", "precious");
  ASSERT_THAT(fs_.MakeSymlink("real", dir_ + "/link"), IsOk());
  EXPECT_FALSE(fs_.Remove(dir_ + "/link/file").ok());
  EXPECT_EQ(ReadFile(dir_ + "/real/file"), "precious");
  EXPECT_THAT(fs_.Remove(dir_ + "/link"), IsOk());
  EXPECT_THAT(fs_.Remove(dir_ + "/real/file"), IsOk());
}

TEST_F(FileSystemTest, ALockGoesWithItsProcessHoweverThatEnds) {
  int locked[2];
  ASSERT_EQ(pipe(locked), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto lock = fs_.Lock(dir_ + "/lock", "the child");
    (void)!write(locked[1], lock.ok() ? "y" : "n", 1);
    for (;;) pause();
  }
  char answer = 0;
  ASSERT_EQ(read(locked[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "us"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("locked by \"the child\"")));
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "us"), IsOk());
  close(locked[0]);
  close(locked[1]);
}

TEST_F(FileSystemTest, AChildDoesNotLetGoOfItsParentsLock) {
  auto lock = fs_.Lock(dir_ + "/lock", "the parent");
  const pid_t child = fork();
  if (child == 0) {
    lock->reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "us"), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(FileSystemTest, ALockIsGoneAlthoughAChildHasACopyOfIt) {
  auto lock = fs_.Lock(dir_ + "/lock", "the parent");
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  lock->reset();
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "us"), IsOk());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST_F(FileSystemTest, LocksNothingThatIsNoFile) {
  WriteFile(dir_ + "/precious", "precious");
  std::filesystem::create_symlink("precious", dir_ + "/link");
  std::filesystem::create_symlink("nowhere", dir_ + "/dangling");
  mkfifo((dir_ + "/fifo").c_str(), 0600);
  std::filesystem::create_directory(dir_ + "/d");
  for (const std::string name : {"link", "dangling", "fifo", "d"}) {
    EXPECT_THAT(fs_.Lock(dir_ + "/" + name, "us"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(name)));
  }
  EXPECT_THAT(fs_.Lock(dir_ + "/none/lock", "us"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_EQ(ReadFile(dir_ + "/precious"), "precious");
  EXPECT_THAT(NamesIn(dir_), UnorderedElementsAre("precious", "link", "dangling", "fifo", "d"));
}

TEST_F(FileSystemTest, LocksOnAFullDisk) {
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &none);
  auto lock = fs_.Lock(dir_ + "/lock", "the first");
  setrlimit(RLIMIT_FSIZE, &before);
  ASSERT_THAT(lock, IsOk());
  EXPECT_THAT(fs_.Lock(dir_ + "/lock", "us"), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not said")));
}

}  // namespace
}  // namespace cohort
