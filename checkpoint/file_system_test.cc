#include "cohort/checkpoint/file_system.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
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
using ::absl_testing::StatusIs;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::NamesIn;
using ::cohort::testing::ReadFile;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;
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

}  // namespace
}  // namespace cohort
