#include "cohort/checkpoint/atomic_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/file_system.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class AtomicFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<AtomicFile> Create(const std::string& target) {
    absl::StatusOr<std::unique_ptr<AtomicFile>> file = AtomicFile::Create(fs_, target);
    EXPECT_THAT(file, IsOk());
    return file.ok() ? *std::move(file) : nullptr;
  }

  void Save(const std::string& target, std::string_view contents) {
    auto file = Create(target);
    ASSERT_THAT(file->Append(contents), IsOk());
    ASSERT_THAT(file->Sync(), IsOk());
    ASSERT_THAT(file->Publish(), IsOk());
  }

  FileSystem& fs_ = *FileSystem::Posix();
  const std::string dir_ = FreshDirectory();
  const std::string target_ = dir_ + "/m.pt";
};

TEST_F(AtomicFileTest, MakesAFileAndNothingElse) {
  Save(target_, "new");
  EXPECT_EQ(ReadFile(target_), "new");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(AtomicFileTest, MakesMissingDirectories) {
  Save(dir_ + "/a/b/c/m.pt", "new");
  EXPECT_EQ(ReadFile(dir_ + "/a/b/c/m.pt"), "new");
}

TEST_F(AtomicFileTest, KeepsTheOldFileUntilPublish) {
  WriteFile(target_, "old");
  auto file = Create(target_);
  ASSERT_THAT(file->Append("ne"), IsOk());
  ASSERT_THAT(file->Append("w"), IsOk());
  EXPECT_EQ(file->num_bytes(), 3);
  ASSERT_THAT(file->Sync(), IsOk());
  EXPECT_EQ(ReadFile(target_), "old");
  ASSERT_THAT(file->Publish(), IsOk());
  EXPECT_EQ(ReadFile(target_), "new");
}

TEST_F(AtomicFileTest, LeavesNoTraceIfNotPublished) {
  WriteFile(target_, "old");
  auto file = Create(target_);
  ASSERT_THAT(file->Append("new"), IsOk());
  EXPECT_THAT(NamesIn(dir_), SizeIs(2));
  file.reset();
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
  EXPECT_EQ(ReadFile(target_), "old");
}

TEST_F(AtomicFileTest, KeepsThePermissionsOfTheFileItReplaces) {
  WriteFile(target_, "secret");
  chmod(target_.c_str(), 0600);
  Save(target_, "new secret");
  EXPECT_EQ(fs_.Inspect(target_)->permissions, 0600);
}

TEST_F(AtomicFileTest, TakesATargetWithTheLongestName) {
  const std::string longest = dir_ + "/" + std::string(255, 'n');
  Save(longest, "new");
  EXPECT_EQ(ReadFile(longest), "new");
}

TEST_F(AtomicFileTest, RemovesWhatADeadProcessLeft) {
  const pid_t child = fork();
  if (child == 0) {
    auto file = AtomicFile::Create(fs_, target_);
    if (file.ok()) (void)(*file)->Append("half");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  ASSERT_THAT(NamesIn(dir_), ElementsAre(HasSubstr(".cohort-tmp-")));

  Save(dir_ + "/other.pt", "new");  // any save in that directory
  EXPECT_THAT(NamesIn(dir_), ElementsAre("other.pt"));
}

TEST_F(AtomicFileTest, LeavesALiveWritersFileAlone) {
  auto slow = Create(target_);
  ASSERT_THAT(slow->Append("slow"), IsOk());
  Save(target_, "quick");
  EXPECT_EQ(ReadFile(target_), "quick");
  ASSERT_THAT(slow->Sync(), IsOk());
  ASSERT_THAT(slow->Publish(), IsOk());
  EXPECT_EQ(ReadFile(target_), "slow");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(AtomicFileTest, LeavesOtherHostsFilesAlone) {
  const std::string foreign = ".cohort-tmp-0000000000000000-1-0000000000000000";
  WriteFile(dir_ + "/" + foreign, "half");
  Save(target_, "new");
  EXPECT_THAT(NamesIn(dir_), ElementsAre(foreign, "m.pt"));
}

TEST_F(AtomicFileTest, ReportsWhereTheSpaceEndedAndKeepsTheOldFile) {
  WriteFile(target_, "old");
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  auto file = Create(target_);
  ASSERT_THAT(file->Append(std::string(1000, 'x')), IsOk());
  const absl::Status first = file->Append(std::string(2 << 20, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(first, StatusIs(absl::StatusCode::kResourceExhausted,
                              AllOf(HasSubstr("cannot save \"" + target_ + "\""), HasSubstr("File too large"),
                                    HasSubstr("1000 bytes had been written and 2097152 more were to follow"))));
  // There is room again, but a file with a hole must not come of it.
  EXPECT_EQ(file->Append("x"), first);
  EXPECT_EQ(file->Sync(), first);
  EXPECT_EQ(file->Publish(), first);
  file.reset();
  EXPECT_EQ(ReadFile(target_), "old");
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
}

TEST_F(AtomicFileTest, ReportsADirectoryThatCannotBeMade) {
  WriteFile(dir_ + "/file", "");
  EXPECT_THAT(AtomicFile::Create(fs_, dir_ + "/file/below/m.pt"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("Not a directory")));
  EXPECT_THAT(NamesIn(dir_), ElementsAre("file"));
}

TEST_F(AtomicFileTest, ReportsADirectoryThatCannotBeWrittenTo) {
  // One in which not even root may make a file.
  EXPECT_THAT(AtomicFile::Create(fs_, "/sys/m.pt"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("cannot save \"/sys/m.pt\": create")));
}

TEST_F(AtomicFileTest, ReportsATargetThatBecameADirectory) {
  auto file = Create(target_);
  ASSERT_THAT(file->Sync(), IsOk());
  std::filesystem::create_directory(target_);
  EXPECT_THAT(file->Publish(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rename")));
  file.reset();
  EXPECT_THAT(NamesIn(dir_), ElementsAre("m.pt"));
  EXPECT_THAT(NamesIn(target_), IsEmpty());
}

}  // namespace
}  // namespace cohort
