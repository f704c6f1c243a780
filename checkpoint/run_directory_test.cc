#include "cohort/checkpoint/run_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/write_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::internal::CheckpointName;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::ReadFile;
using ::cohort::testing::WriteFile;
using ::cohort::testing::WriteRunFile;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Files = std::map<std::string, std::string>;

CheckpointInfo WriteCheckpoint(const std::string& run, int64_t step, int64_t sequence, Files files = {},
                               std::string_view run_id = "mine") {
  CheckpointInfo info;
  info.step = step;
  info.sequence = sequence;
  info.run_id = run_id;
  info.world_size = 1;
  info.metrics["loss"] = 0.5;
  if (files.empty()) files["state.pt"] = absl::StrCat("state of step ", step);
  return testing::WriteCheckpoint(run, info, files);
}

std::vector<std::string> NamesOf(const RunDirectory& run) {
  std::vector<std::string> names;
  for (const CheckpointInfo& checkpoint : run.checkpoints) names.push_back(checkpoint.path.substr(run.path.size() + 1));
  return names;
}

MATCHER_P2(SkippedAs, name, reason, "") {
  return arg.name == name && ::testing::ExplainMatchResult(reason, arg.reason, result_listener);
}

class RunDirectoryTest : public ::testing::Test {
 protected:
  RunDirectory Read() {
    absl::StatusOr<RunDirectory> run = ReadRunDirectory(run_);
    EXPECT_THAT(run, IsOk());
    return run.ok() ? *std::move(run) : RunDirectory();
  }

  // Why the only checkpoint is skipped.
  std::string Reason() {
    const RunDirectory run = Read();
    EXPECT_THAT(run.checkpoints, IsEmpty());
    EXPECT_EQ(run.skipped.size(), 1);
    return run.skipped.empty() ? "" : run.skipped[0].reason;
  }

  const std::string run_ = FreshDirectory();
};

TEST_F(RunDirectoryTest, AnEmptyOneHoldsNothing) {
  const RunDirectory run = Read();
  EXPECT_EQ(run.path, run_);
  EXPECT_EQ(run.run_id, "");
  EXPECT_THAT(run.checkpoints, IsEmpty());
  EXPECT_THAT(run.skipped, IsEmpty());
}

TEST_F(RunDirectoryTest, TheOneSavedLastComesFirst) {
  WriteRunFile(run_, "mine");
  WriteCheckpoint(run_, 900, 1);
  WriteCheckpoint(run_, 10100, 2);
  WriteCheckpoint(run_, 1000, 3);
  const RunDirectory run = Read();
  EXPECT_EQ(run.run_id, "mine");
  EXPECT_THAT(NamesOf(run), ElementsAre("step_00001000", "step_00010100", "step_00000900"));
  EXPECT_THAT(run.skipped, IsEmpty());
}

TEST_F(RunDirectoryTest, AllThatTheManifestSaysIsThere) {
  const CheckpointInfo written = WriteCheckpoint(run_, 7, 3, {{"a", "12345"}, {"b", ""}});
  const RunDirectory run = Read();
  ASSERT_EQ(run.checkpoints.size(), 1);
  const CheckpointInfo& read = run.checkpoints[0];
  EXPECT_EQ(read.path, written.path);
  EXPECT_EQ(internal::EncodeManifest(read), internal::EncodeManifest(written));
  EXPECT_FALSE(read.pinned);
  WriteFile(written.path + "/pinned", "");
  EXPECT_TRUE(Read().checkpoints[0].pinned);
}

TEST_F(RunDirectoryTest, WhatIsNotNamedAsOneIsNotLookedAt) {
  WriteCheckpoint(run_, 1, 1);
  ASSERT_EQ(symlink("step_00000001", (run_ + "/latest").c_str()), 0);
  for (const std::string_view name : {"notes.txt", ".cohort-lock", "step", "mystep_1"}) {
    WriteFile(absl::StrCat(run_, "/", name), "");
  }
  ASSERT_EQ(mkdir((run_ + "/.cohort-step-1-2").c_str(), 0777), 0);
  const RunDirectory run = Read();
  EXPECT_THAT(NamesOf(run), ElementsAre("step_00000001"));
  EXPECT_THAT(run.skipped, IsEmpty());
}

// RET-05.
TEST_F(RunDirectoryTest, OddNamesAreSkippedAndSaidWhy) {
  const std::string newline = "step_40\nforged";
  for (const std::string& name : {std::string("step_abc.pt"), std::string("step_-5.pt"), std::string("step_00020.pt"),
                                  std::string("step_99999999999999999999"), newline}) {
    WriteFile(absl::StrCat(run_, "/", name), "junk");
  }
  ASSERT_EQ(mkdir((run_ + "/step_50.pt").c_str(), 0777), 0);
  WriteFile(run_ + "/step_60", "a file");
  WriteCheckpoint(run_, 20, 1);
  const auto is_no_name = HasSubstr("not named \"step_\" and a number");
  const RunDirectory run = Read();
  EXPECT_THAT(NamesOf(run), ElementsAre("step_00000020"));
  EXPECT_THAT(run.skipped,
              ElementsAre(SkippedAs("step_-5.pt", is_no_name), SkippedAs("step_00020.pt", is_no_name),
                          SkippedAs(newline, is_no_name), SkippedAs("step_50.pt", is_no_name),
                          SkippedAs("step_60", "it is a file, not a directory"),
                          SkippedAs("step_99999999999999999999", is_no_name), SkippedAs("step_abc.pt", is_no_name)));
  EXPECT_EQ(run.skipped[4].step, 60);
  EXPECT_EQ(run.skipped[5].step, std::nullopt);
}

TEST_F(RunDirectoryTest, OtherNumbersOfLeadingZerosWillDo) {
  std::filesystem::rename(WriteCheckpoint(run_, 20, 1).path, run_ + "/step_20");
  std::filesystem::rename(WriteCheckpoint(run_, 20, 2).path, run_ + "/step_020");
  WriteCheckpoint(run_, 20, 3);
  EXPECT_THAT(NamesOf(Read()), ElementsAre("step_00000020", "step_020", "step_20"));
}

TEST_F(RunDirectoryTest, ACopyIsSettledByARule) {
  const std::string original = WriteCheckpoint(run_, 20, 5).path;
  for (const std::string_view suffix : {"-3", "-12", "-2"}) {
    std::filesystem::copy(original, absl::StrCat(original, suffix));
  }
  WriteCheckpoint(run_, 30, 5);
  WriteCheckpoint(run_, 10, 6);
  EXPECT_THAT(NamesOf(Read()), ElementsAre("step_00000010", "step_00000030", "step_00000020-12", "step_00000020-3",
                                           "step_00000020-2", "step_00000020"));
}

TEST_F(RunDirectoryTest, ASaveThatDidNotEndIsSkipped) {
  unlink((WriteCheckpoint(run_, 30, 2).path + "/manifest.json").c_str());
  EXPECT_EQ(Reason(), "it has no manifest.json: its save did not end, or it is not a checkpoint");
  EXPECT_EQ(Read().skipped[0].step, 30);
  EXPECT_EQ(Read().run_id, "");
}

TEST_F(RunDirectoryTest, AManifestThatIsDamagedOrNoneIsSkipped) {
  const std::string path = WriteCheckpoint(run_, 30, 2).path + "/manifest.json";
  const std::string manifest = ReadFile(path);
  WriteFile(path, "");
  EXPECT_THAT(Reason(), StartsWith("manifest.json: it begins with \"\""));
  WriteFile(path, manifest.substr(0, 100));
  EXPECT_THAT(Reason(), StartsWith("manifest.json: it does not end with its checksum"));
  std::string changed = manifest;
  changed[40] ^= 1;
  WriteFile(path, changed);
  EXPECT_THAT(Reason(), AllOf(StartsWith("manifest.json: it has the checksum "), HasSubstr("it is damaged")));
  WriteFile(path, "{\"version\": 2, and something new");
  EXPECT_EQ(Reason(), "manifest.json: it is of version 2; this cohort reads version 1");
  WriteFile(path, std::string(internal::kMaxManifestBytes + 1, ' '));
  EXPECT_THAT(Reason(), HasSubstr("has more than 1048576 bytes"));
  unlink(path.c_str());
  ASSERT_EQ(mkdir(path.c_str(), 0777), 0);
  EXPECT_THAT(Reason(), HasSubstr("manifest.json"));
  rmdir(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0666), 0);  // and nobody waits for a writer
  EXPECT_THAT(Reason(), HasSubstr("not a regular file"));
  unlink(path.c_str());
  ASSERT_EQ(symlink("manifest.json", path.c_str()), 0);
  EXPECT_THAT(Reason(), HasSubstr("Too many levels of symbolic links"));
}

TEST_F(RunDirectoryTest, FilesThatAreNotAsTheyWereSavedAreSkipped) {
  const std::string path = WriteCheckpoint(run_, 30, 2, {{"a", "12345"}, {"b c", "1234567"}}).path;
  WriteFile(path + "/a", "1234");
  EXPECT_EQ(Reason(), "a has 4 bytes; 5 were saved");
  WriteFile(path + "/a", "123456");
  EXPECT_EQ(Reason(), "a has 6 bytes; 5 were saved");
  WriteFile(path + "/a", "");
  EXPECT_EQ(Reason(), "a has 0 bytes; 5 were saved");
  WriteFile(path + "/a", "12345");
  unlink((path + "/b c").c_str());
  EXPECT_EQ(Reason(), "b c is missing; 7 bytes were saved");
  ASSERT_EQ(symlink("a", (path + "/b c").c_str()), 0);
  EXPECT_EQ(Reason(), "b c is a symlink, not a regular file");
  unlink((path + "/b c").c_str());
  ASSERT_EQ(mkdir((path + "/b c").c_str(), 0777), 0);
  EXPECT_EQ(Reason(), "b c is a directory, not a regular file");
  rmdir((path + "/b c").c_str());
  ASSERT_EQ(mkfifo((path + "/b c").c_str(), 0666), 0);
  EXPECT_EQ(Reason(), "b c is neither a file nor a directory, not a regular file");
  unlink((path + "/b c").c_str());
  WriteFile(path + "/b c", "7654321");  // its contents are not read
  EXPECT_THAT(Read().skipped, IsEmpty());
}

TEST_F(RunDirectoryTest, WhatAReasonSaysIsFitToBeShown) {
  const std::string path = WriteCheckpoint(run_, 30, 2, {{"turn\u202eme", "12345"}}).path;
  WriteFile(path + "/turn\u202eme", "1234");
  EXPECT_EQ(Reason(), "turn\\u{202e}me has 4 bytes; 5 were saved");
}

TEST_F(RunDirectoryTest, AFileThatTheManifestDoesNotListIsNobodysConcern) {
  WriteFile(WriteCheckpoint(run_, 30, 2).path + "/notes.txt", "good one");
  EXPECT_THAT(NamesOf(Read()), ElementsAre("step_00000030"));
}

TEST_F(RunDirectoryTest, ARenamedOneIsSkipped) {
  std::filesystem::rename(WriteCheckpoint(run_, 30, 2).path, run_ + "/step_00000040");
  EXPECT_EQ(Reason(), "its name says step 40, and its manifest 30");
}

TEST_F(RunDirectoryTest, ASymlinkToOneIsNone) {
  const std::string elsewhere = FreshDirectory();
  std::filesystem::rename(WriteCheckpoint(run_, 30, 2).path, elsewhere + "/x");
  ASSERT_EQ(symlink((elsewhere + "/x").c_str(), (run_ + "/step_00000030").c_str()), 0);
  EXPECT_EQ(Reason(), "it is a symlink, not a directory");
}

TEST_F(RunDirectoryTest, CheckpointsOfOtherRunsAreSkippedByName) {
  WriteRunFile(run_, "mine");
  WriteCheckpoint(run_, 1, 1);
  WriteCheckpoint(run_, 2, 9, {}, "other");
  const RunDirectory run = Read();
  EXPECT_THAT(NamesOf(run), ElementsAre("step_00000001"));
  EXPECT_THAT(run.skipped, ElementsAre(SkippedAs("step_00000002",
                                                 "it is of the run \"other\", and the directory of the run \"mine\"")));
}

TEST_F(RunDirectoryTest, WithoutARunFileItIsTheRunOfItsCheckpoints) {
  WriteCheckpoint(run_, 1, 1, {}, "other");
  EXPECT_EQ(Read().run_id, "other");
  WriteCheckpoint(run_, 2, 2, {}, "another");
  EXPECT_THAT(ReadRunDirectory(run_), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("has no run.json, and checkpoints of 2 runs: \"another\", "
                                                         "\"other\"")));
  for (int64_t step = 3; step < 9; ++step) WriteCheckpoint(run_, step, step, {}, absl::StrCat("run", step));
  EXPECT_THAT(ReadRunDirectory(run_).status().message(),
              HasSubstr("8 runs: \"another\", \"other\", \"run3\", \"run4\", \"run5\", ..."));
}

TEST_F(RunDirectoryTest, ADamagedRunFileIsAnError) {
  WriteCheckpoint(run_, 1, 1);
  const auto is_invalid = [](std::string_view why) {
    return StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("run.json"), HasSubstr(std::string(why))));
  };
  WriteFile(run_ + "/run.json", "");
  EXPECT_THAT(ReadRunDirectory(run_), is_invalid("it begins with \"\""));
  WriteFile(run_ + "/run.json", "{\"version\": 2, }");
  EXPECT_THAT(ReadRunDirectory(run_), is_invalid("it is of version 2; this cohort reads version 1"));
  WriteFile(run_ + "/run.json", std::string(internal::kMaxRunFileBytes + 1, ' '));
  EXPECT_THAT(ReadRunDirectory(run_), is_invalid("has more than 65536 bytes"));
  unlink((run_ + "/run.json").c_str());
  ASSERT_EQ(mkdir((run_ + "/run.json").c_str(), 0777), 0);
  EXPECT_THAT(ReadRunDirectory(run_), is_invalid(""));
}

TEST_F(RunDirectoryTest, WhatIsNoDirectoryIsAnError) {
  EXPECT_THAT(ReadRunDirectory(run_ + "/missing"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("missing")));
  WriteFile(run_ + "/file", "");
  EXPECT_THAT(ReadRunDirectory(run_ + "/file"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("file")));
  EXPECT_THAT(ReadRunDirectory(""), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RunDirectoryTest, APathMayBeASymlinkEndWithSlashesOrBeRelative) {
  WriteCheckpoint(run_, 1, 1);
  ASSERT_EQ(symlink(run_.c_str(), (run_ + "/link").c_str()), 0);
  const absl::StatusOr<RunDirectory> linked = ReadRunDirectory(run_ + "/link//");
  ASSERT_THAT(linked, IsOk());
  EXPECT_EQ(linked->path, run_ + "/link");
  EXPECT_EQ(linked->checkpoints.at(0).path, run_ + "/link/step_00000001");
  setenv("BUILD_WORKING_DIRECTORY", run_.c_str(), 1);
  const absl::StatusOr<RunDirectory> relative = ReadRunDirectory("link");
  unsetenv("BUILD_WORKING_DIRECTORY");
  ASSERT_THAT(relative, IsOk());
  EXPECT_EQ(relative->path, run_ + "/link");
}

TEST_F(RunDirectoryTest, ManyAreReadByThreadsAndComeInTheSameOrder) {
  WriteRunFile(run_, "mine");
  std::vector<std::string> expected;
  for (int64_t step = 0; step < 500; ++step) {
    WriteCheckpoint(run_, step, step + 1);
    if (step % 7 == 0) {
      WriteFile(absl::StrCat(run_, "/", CheckpointName(step, 1), "/state.pt"), "x");
    } else {
      expected.insert(expected.begin(), CheckpointName(step, 1));
    }
  }
  const RunDirectory run = Read();
  EXPECT_EQ(NamesOf(run), expected);
  ASSERT_EQ(run.skipped.size(), 72);
  for (size_t i = 0; i < run.skipped.size(); ++i) {
    EXPECT_EQ(run.skipped[i].name, CheckpointName(static_cast<int64_t>(7 * i), 1));
    EXPECT_THAT(run.skipped[i].reason, StartsWith("state.pt has 1 bytes; "));
  }
}

// ---- Others work in the directory, or it cannot be read ----

// Calls `before` before each operation that reads. What it returns that is no OK is the result.
class WatchedFileSystem : public FileSystem {
 public:
  explicit WatchedFileSystem(std::function<absl::Status(std::string_view operation, std::string_view path)> before)
      : before_(std::move(before)) {}

  absl::StatusOr<FileInfo> Inspect(std::string_view path) override {
    const absl::Status status = before_("inspect", path);
    return status.ok() ? posix_->Inspect(path) : status;
  }
  absl::StatusOr<std::vector<std::string>> List(std::string_view path) override {
    const absl::Status status = before_("list", path);
    return status.ok() ? posix_->List(path) : status;
  }
  absl::StatusOr<std::string> ReadSmallFile(std::string_view path, int64_t max_bytes) override {
    const absl::Status status = before_("read", path);
    return status.ok() ? posix_->ReadSmallFile(path, max_bytes) : status;
  }

  // Who looks changes nothing.
  absl::StatusOr<std::string> ReadLink(std::string_view) override { return Refuse(); }
  absl::StatusOr<std::unique_ptr<OutputFile>> Create(std::string_view, std::optional<int>) override { return Refuse(); }
  absl::Status Rename(std::string_view, std::string_view) override { return Refuse(); }
  absl::Status Remove(std::string_view) override { return Refuse(); }
  absl::Status RemoveIfAbandoned(std::string_view) override { return Refuse(); }
  absl::Status MakeDirectory(std::string_view) override { return Refuse(); }
  absl::Status RemoveDirectory(std::string_view) override { return Refuse(); }
  absl::Status MakeSymlink(std::string_view, std::string_view) override { return Refuse(); }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(std::string_view, std::string_view) override { return Refuse(); }
  absl::Status SyncDirectory(std::string_view) override { return Refuse(); }

 private:
  absl::Status Refuse() const {
    ADD_FAILURE() << "it is not to be changed";
    return absl::UnimplementedError("");
  }

  FileSystem* const posix_ = FileSystem::Posix();
  const std::function<absl::Status(std::string_view operation, std::string_view path)> before_;
};

// A job that keeps one checkpoint saves, and removes the one before, between any two operations of who reads. Not
// reading again would find none.
TEST_F(RunDirectoryTest, AJobThatSavesAndRemovesMeanwhileIsNeverSeenWithoutACheckpoint) {
  WriteRunFile(run_, "mine");
  for (int first = 1; first <= 8; ++first) {
    for (int second = first; second <= 16; ++second) {
      int64_t step = 1000 * first + 10 * second;
      std::filesystem::remove_all(run_ + "/gone");
      WriteCheckpoint(run_, step, step);
      int num_operations = 0;
      WatchedFileSystem watched([&](std::string_view, std::string_view) {
        ++num_operations;
        if (num_operations == first || num_operations == second) {
          WriteCheckpoint(run_, step + 1, step + 1);
          std::filesystem::rename(absl::StrCat(run_, "/", CheckpointName(step, 1)), run_ + "/gone");
          std::filesystem::remove_all(run_ + "/gone");
          ++step;
        }
        return absl::OkStatus();
      });
      const absl::StatusOr<RunDirectory> run = ReadRunDirectory(watched, run_);
      ASSERT_THAT(run, IsOk());
      ASSERT_EQ(run->checkpoints.size(), 1) << first << ", " << second;
      EXPECT_THAT(run->skipped, IsEmpty()) << first << ", " << second << ": " << run->skipped[0].reason;
      EXPECT_GE(run->checkpoints[0].step, 1000 * first + 10 * second);
      std::filesystem::remove_all(absl::StrCat(run_, "/", CheckpointName(step, 1)));
    }
  }
}

TEST_F(RunDirectoryTest, ADirectoryThatNeverComesToRestIsAnError) {
  int64_t step = 1;
  WriteCheckpoint(run_, step, step);
  WatchedFileSystem watched([&](std::string_view operation, std::string_view) {
    if (operation == "inspect") {
      std::filesystem::rename(absl::StrCat(run_, "/", CheckpointName(step, 1)),
                              absl::StrCat(run_, "/", CheckpointName(step + 1, 1)));
      ++step;
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(ReadRunDirectory(watched, run_), StatusIs(absl::StatusCode::kAborted, HasSubstr("changes too fast")));
}

TEST_F(RunDirectoryTest, WhatCannotBeReadIsSkippedAndWhatFailsForTheMachineIsAnError) {
  WriteCheckpoint(run_, 1, 1);
  WriteCheckpoint(run_, 2, 2);
  absl::Status error;
  std::string_view operation, suffix;
  WatchedFileSystem watched([&](std::string_view called, std::string_view path) {
    return called == operation && absl::EndsWith(path, suffix) ? error : absl::OkStatus();
  });
  const std::pair<std::string_view, std::string_view> calls[] = {
      {"inspect", "step_00000002"}, {"read", "2/manifest.json"}, {"inspect", "2/state.pt"}};
  for (const auto& call : calls) {
    std::tie(operation, suffix) = call;
    for (const absl::StatusCode code : {absl::StatusCode::kPermissionDenied, absl::StatusCode::kUnavailable}) {
      error = absl::Status(code, "why");
      const absl::StatusOr<RunDirectory> run = ReadRunDirectory(watched, run_);
      ASSERT_THAT(run, IsOk());
      EXPECT_THAT(NamesOf(*run), ElementsAre("step_00000001"));
      EXPECT_THAT(run->skipped, ElementsAre(SkippedAs("step_00000002", "why")));
    }
    error = absl::ResourceExhaustedError("too many open files");
    EXPECT_EQ(ReadRunDirectory(watched, run_).status(), error);
  }
  operation = "inspect", suffix = "2/pinned", error = absl::UnavailableError("why");
  EXPECT_TRUE(ReadRunDirectory(watched, run_)->checkpoints[0].pinned) << "if in doubt it stays";
  for (const auto& call : {std::pair("list", run_), std::pair("read", run_ + "/run.json")}) {
    operation = call.first, suffix = call.second;
    EXPECT_EQ(ReadRunDirectory(watched, run_).status(), error);
  }
}

// ---- ReadCheckpoint ----

TEST_F(RunDirectoryTest, OneCheckpointIsReadWhateverItsNameIs) {
  const CheckpointInfo written = WriteCheckpoint(run_, 7, 3);
  ASSERT_EQ(symlink("step_00000007", (run_ + "/latest").c_str()), 0);
  const absl::StatusOr<CheckpointInfo> latest = ReadCheckpoint(run_ + "/latest/");
  ASSERT_THAT(latest, IsOk());
  EXPECT_EQ(latest->path, run_ + "/latest");
  EXPECT_EQ(internal::EncodeManifest(*latest), internal::EncodeManifest(written));
  std::filesystem::rename(written.path, run_ + "/best");
  EXPECT_THAT(ReadCheckpoint(run_ + "/best"), IsOk());
  WriteFile(run_ + "/best/state.pt", "x");
  EXPECT_THAT(ReadCheckpoint(run_ + "/best"),
              StatusIs(absl::StatusCode::kDataLoss, "\"" + run_ + "/best\": state.pt has 1 bytes; 15 were saved"));
  EXPECT_THAT(ReadCheckpoint(run_), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has no manifest.json")));
  EXPECT_THAT(ReadCheckpoint(run_ + "/none"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
  EXPECT_THAT(ReadCheckpoint(run_ + "/best/state.pt"), StatusIs(absl::StatusCode::kInvalidArgument));
}

// ---- VerifyCheckpoint ----

class VerifyCheckpointTest : public RunDirectoryTest {};

std::string Bytes(size_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>((seed = seed * 1664525 + 1013904223) >> 24);
  return bytes;
}

TEST_F(VerifyCheckpointTest, EveryFileIsRead) {
  const Files files = {
      {"large", Bytes((40 << 20) + 7, 1)}, {"empty", ""}, {"small", "x"}, {"sixteen", Bytes(16 << 20, 2)}};
  const CheckpointInfo info = WriteCheckpoint(run_, 1, 1, files);
  EXPECT_EQ(VerifyCheckpoint(info), absl::OkStatus());
  for (const auto& [name, contents] : files) {
    if (contents.empty()) continue;
    for (const size_t place : {size_t{0}, contents.size() / 2, contents.size() - 1}) {
      std::string damaged = contents;
      damaged[place] ^= 4;
      WriteFile(info.path + "/" + name, damaged);
      EXPECT_THAT(VerifyCheckpoint(info), StatusIs(absl::StatusCode::kDataLoss,
                                                   AllOf(HasSubstr(absl::StrCat("/", name, "\" has the checksum ")),
                                                         HasSubstr(" was saved: it is damaged"))));
    }
    WriteFile(info.path + "/" + name, contents);
  }
}

TEST_F(VerifyCheckpointTest, SaysHowFarItIs) {
  const CheckpointInfo info = WriteCheckpoint(run_, 1, 1, {{"a", Bytes(40 << 20, 1)}, {"b", "xy"}, {"c", ""}});
  int64_t last = 0, num_calls = 0;
  EXPECT_EQ(VerifyCheckpoint(info,
                             [&](int64_t done, int64_t total) {
                               EXPECT_GT(done, last);
                               EXPECT_EQ(total, (40 << 20) + 2);
                               last = done;
                               ++num_calls;
                             }),
            absl::OkStatus());
  EXPECT_EQ(last, (40 << 20) + 2);
  EXPECT_GE(num_calls, 40);
}

TEST_F(VerifyCheckpointTest, ALengthThatChangedIsDamage) {
  const CheckpointInfo info = WriteCheckpoint(run_, 1, 1, {{"a", "12345"}, {"b", ""}});
  WriteFile(info.path + "/b", "1");
  EXPECT_THAT(VerifyCheckpoint(info),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/b\" has 1 bytes; 0 were saved: it is damaged")));
  WriteFile(info.path + "/a", "1234");
  EXPECT_THAT(VerifyCheckpoint(info), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/a\" has 4 bytes; 5 were")))
      << "the first one is told, whichever is found first";
}

TEST_F(VerifyCheckpointTest, WhatCannotBeOpenedIsTheOperatingSystemsError) {
  const CheckpointInfo info = WriteCheckpoint(run_, 1, 1, {{"a", "12345"}});
  unlink((info.path + "/a").c_str());
  EXPECT_THAT(VerifyCheckpoint(info), StatusIs(absl::StatusCode::kNotFound, HasSubstr("/a")));
  ASSERT_EQ(mkfifo((info.path + "/a").c_str(), 0666), 0);
  EXPECT_THAT(VerifyCheckpoint(info), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a regular file")));
}

}  // namespace
}  // namespace cohort
