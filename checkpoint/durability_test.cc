// Crash points are enumerated, not drawn (EnumerateCrashes). On every disk that a save may leave:
//
//   I1  the path holds the old file or the new one, whole
//   I2  if the save said OK, the new one
//   I3  what else was left is never in the way: the next save works, and leaves the directory with the one file
//
// The detector is shown savers that are wrong on purpose, and must find each.

#include <cstddef>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/atomic_file.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/testing/crash_file_system.h"
#include "cohort/checkpoint/testing/crash_points.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::cohort::testing::CrashFileSystem;
using ::cohort::testing::CrashSubject;
using ::cohort::testing::CrashTally;
using ::cohort::testing::EnumerateCrashes;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Contents = std::vector<std::string_view>;  // in the pieces in which they are written
using Saver = absl::FunctionRef<absl::Status(FileSystem&, const std::string& target, const Contents&)>;

constexpr std::string_view kOld = "old file";
const Contents kNew = {"new ", "file!"};
constexpr std::string_view kNewWhole = "new file!";

// What is on the disk before the save under test.
struct Scenario {
  std::string_view name;
  std::string target;
  std::function<void(CrashFileSystem&, Saver)> prepare;
  bool power_lost_since = false;
};

std::string DirectoryOf(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

// ---- Savers ----

absl::Status SaveAtomically(FileSystem& fs, const std::string& target, const Contents& contents) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<AtomicFile> file, AtomicFile::Create(fs, target));
  // The first piece is known last.
  ABSL_RETURN_IF_ERROR(file->Append(std::string(contents.front().size(), '?')));
  for (size_t i = 1; i < contents.size(); ++i) ABSL_RETURN_IF_ERROR(file->Append(contents[i]));
  ABSL_RETURN_IF_ERROR(file->Overwrite(0, contents.front()));
  ABSL_RETURN_IF_ERROR(file->Sync());
  return file->Publish();
}

// A saver as people write it, with parts to leave out.
struct Faulty {
  bool sync_file = true;
  bool retry_sync = false;
  bool sync_directory = true;
  bool sync_above = true;
  bool in_place = false;

  absl::Status operator()(FileSystem& fs, const std::string& target, const Contents& contents) const {
    const std::string directory = DirectoryOf(target);
    ABSL_RETURN_IF_ERROR(MakeDirectories(fs, directory));
    const std::string written = in_place ? target : target + ".tmp";
    (void)fs.Remove(written);
    ABSL_ASSIGN_OR_RETURN(std::unique_ptr<OutputFile> file, fs.Create(written, std::nullopt));
    for (std::string_view piece : contents) ABSL_RETURN_IF_ERROR(file->Append(piece));
    if (sync_file) {
      absl::Status synced = file->Sync();
      if (!synced.ok() && retry_sync) synced = file->Sync();
      ABSL_RETURN_IF_ERROR(synced);
    }
    if (!in_place) {
      ABSL_RETURN_IF_ERROR(fs.Rename(written, target));
    }
    if (!sync_directory) return absl::OkStatus();
    ABSL_RETURN_IF_ERROR(fs.SyncDirectory(directory));
    for (std::string above = directory; sync_above && above != "/";) {
      above = DirectoryOf(above);
      ABSL_RETURN_IF_ERROR(fs.SyncDirectory(above));
    }
    return absl::OkStatus();
  }

  static absl::Status MakeDirectories(FileSystem& fs, const std::string& directory) {
    if (fs.Inspect(directory).ok()) return absl::OkStatus();
    ABSL_RETURN_IF_ERROR(MakeDirectories(fs, DirectoryOf(directory)));
    return fs.MakeDirectory(directory);
  }
};

// ---- Scenarios ----

void Put(CrashFileSystem& disk, const std::string& target, std::string_view contents) {
  ABSL_CHECK_OK(SaveAtomically(disk, target, {contents}));
}

std::vector<Scenario> Scenarios() {
  return {
      {"first save", "/m.pt", [](CrashFileSystem&, Saver) {}},
      {"replace", "/m.pt", [](CrashFileSystem& disk, Saver) { Put(disk, "/m.pt", kOld); }},
      {"new nested directories", "/a/b/m.pt", [](CrashFileSystem&, Saver) {}},
      {"replace in a directory", "/a/m.pt", [](CrashFileSystem& disk, Saver) { Put(disk, "/a/m.pt", kOld); }},
      {"directories that a killed process had only just made", "/a/b/m.pt",
       [](CrashFileSystem& disk, Saver) {
         ABSL_CHECK_OK(disk.MakeDirectory("/a"));
         ABSL_CHECK_OK(disk.MakeDirectory("/a/b"));
       }},
      {"what an interrupted save left", "/m.pt",
       [](CrashFileSystem& disk, Saver save) {
         Put(disk, "/m.pt", kOld);
         disk.LosePowerAt(disk.num_operations() + 4);
         ABSL_CHECK(!save(disk, "/m.pt", {"half ", "a file"}).ok());
       },
       /*power_lost_since=*/true},
  };
}

// ---- The detector ----

class SaveSubject final : public CrashSubject {
 public:
  SaveSubject(const Scenario& scenario, Saver save) : scenario_(scenario), save_(save) {}

  void ForEachDisk(WithDisk with) override {
    CrashFileSystem disk;
    scenario_.prepare(disk, save_);
    if (scenario_.power_lost_since) {
      disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view) { with(rebooted); });
    } else {
      with(disk);
    }
  }

  void Begin(CrashFileSystem& disk) override { before_ = disk.Read(scenario_.target); }

  absl::Status Act(CrashFileSystem& disk) override { return save_(disk, scenario_.target, kNew); }

  Violations CheckRunning(CrashFileSystem& disk, bool) override {
    const std::optional<std::string> now = disk.Read(scenario_.target);
    if (now == before_ || now == kNewWhole) return {};
    return {"I1, running: neither old nor new"};
  }

  Violations CheckRebooted(CrashFileSystem& disk, bool saved) override {
    Violations violations;
    const std::optional<std::string> found = disk.Read(scenario_.target);
    const std::string shown = absl::StrCat("found \"", found.value_or("<absent>"), "\"");
    if (found != before_ && found != kNewWhole) violations.push_back(absl::StrCat("I1: ", shown));
    if (saved && found != kNewWhole) violations.push_back(absl::StrCat("I2: saved, but ", shown));
    if (absl::Status again = save_(disk, scenario_.target, kNew); !again.ok()) {
      violations.push_back(absl::StrCat("I3: the next save fails: ", again.ToString()));
    }
    if (auto names = disk.List(DirectoryOf(scenario_.target)); !names.ok() || names->size() != 1) {
      violations.push_back("I3: something is left beside the file");
    }
    return violations;
  }

 private:
  const Scenario& scenario_;
  const Saver save_;
  std::optional<std::string> before_;
};

CrashTally Enumerate(Saver save) {
  CrashTally all;
  for (const Scenario& scenario : Scenarios()) {
    SaveSubject subject(scenario, save);
    all += EnumerateCrashes(scenario.name, subject);
  }
  return all;
}

CrashSubject::Violations Check(Saver save) { return Enumerate(save).violations; }

// ---- Tests ----

TEST(DurabilityTest, AtomicFileSurvivesEveryCrashAndEveryError) {
  const CrashTally tally = Enumerate(SaveAtomically);
  EXPECT_THAT(tally.violations, IsEmpty());
  std::cout << tally.crash_points << " crash points, " << tally.states << " states" << std::endl;
  EXPECT_GE(tally.crash_points, 300);
  EXPECT_GE(tally.states, 3'000);
}

TEST(DurabilityTest, TheDetectorAcceptsAPlainSaverThatIsRight) { EXPECT_THAT(Check(Faulty{}), IsEmpty()); }

TEST(DurabilityTest, TheDetectorFindsAMissingSync) {
  EXPECT_THAT(Check(Faulty{.sync_file = false}), Contains(HasSubstr("I1: found \"\"")));
}

TEST(DurabilityTest, TheDetectorFindsASyncThatIsTriedAgain) {
  EXPECT_THAT(Check(Faulty{.retry_sync = true}), Contains(HasSubstr("I2")));
}

TEST(DurabilityTest, TheDetectorFindsAMissingDirectorySync) {
  EXPECT_THAT(Check(Faulty{.sync_directory = false}), Contains(HasSubstr("I2: saved, but found \"old file\"")));
}

TEST(DurabilityTest, TheDetectorFindsDirectoriesAboveThatWereNotSynced) {
  EXPECT_THAT(Check(Faulty{.sync_above = false}),
              Contains(HasSubstr("[directories that a killed process had only just made] I2")));
}

TEST(DurabilityTest, TheDetectorFindsAnInPlaceWrite) {
  EXPECT_THAT(Check(Faulty{.in_place = true}), Contains(HasSubstr("[replace] I1: found \"<absent>\"")));
}

}  // namespace
}  // namespace cohort
