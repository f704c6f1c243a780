#include "cohort/checkpoint/testing/crash_points.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/testing/crash_file_system.h"

namespace cohort::testing {
namespace {

// What is wrong on purpose is wrong in thousands of ways.
constexpr size_t kEnough = 100;

class Enumeration {
 public:
  Enumeration(std::string_view name, CrashSubject& subject) : name_(name), subject_(subject) {}

  CrashTally Run() {
    const int64_t num_operations = CountOperations();
    for (int64_t n = 1; n <= num_operations + 1 && !IsEnough(); ++n) LosePowerAt(n);
    for (int64_t n = 1; n <= num_operations && !IsEnough(); ++n) {
      FailAt(n, absl::ResourceExhaustedError("No space left on device"));
      FailAt(n, absl::UnavailableError("Input/output error"));
    }
    return std::move(tally_);
  }

 private:
  bool IsEnough() const { return tally_.violations.size() >= kEnough; }

  absl::Status Act(CrashFileSystem& disk) {
    subject_.Begin(disk);
    return subject_.Act(disk);
  }

  int64_t CountOperations() {
    int64_t most = 0;
    subject_.ForEachDisk([&](CrashFileSystem& disk) {
      const int64_t before = disk.num_operations();
      const absl::Status acted = Act(disk);
      if (!acted.ok()) Report({absl::StrCat("fails undisturbed: ", acted.ToString())}, disk, "no crash");
      most = std::max(most, disk.num_operations() - before);
    });
    return most;
  }

  void LosePowerAt(int64_t n) {
    subject_.ForEachDisk([&](CrashFileSystem& disk) {
      subject_.Begin(disk);
      ++tally_.crash_points;
      disk.LosePowerAt(disk.num_operations() + n);
      const absl::Status acted = subject_.Act(disk);
      disk.LosePowerAt(disk.num_operations() + 1);
      CheckOutcomes(disk, acted.ok(), absl::StrCat("power lost at operation ", n));
    });
  }

  void FailAt(int64_t n, const absl::Status& error) {
    subject_.ForEachDisk([&](CrashFileSystem& disk) {
      subject_.Begin(disk);
      const int64_t failing = disk.num_operations() + n;
      disk.FailAt(failing, error);
      const absl::Status acted = subject_.Act(disk);
      if (disk.num_operations() < failing) return;  // this disk asks for fewer operations than another
      ++tally_.crash_points;
      const std::string when = absl::StrCat("operation ", n, " fails with ", error.message());
      ++tally_.states;
      const CrashSubject::Violations running = subject_.CheckRunning(disk, acted.ok());
      Report(running, disk, when);
      if (!running.empty()) return;  // it is too late
      CheckOutcomes(disk, acted.ok(), absl::StrCat(when, ", then power lost"));
      const absl::Status again = Act(disk);
      if (!again.ok()) Report({absl::StrCat("the next one fails: ", again.ToString())}, disk, when);
      if (again.ok()) CheckOutcomes(disk, true, absl::StrCat(when, ", then a good one, then power lost"));
    });
  }

  void CheckOutcomes(const CrashFileSystem& disk, bool acted, std::string_view when) {
    disk.ForEachOutcome([&](CrashFileSystem& rebooted, std::string_view kept) {
      ++tally_.states;
      const CrashSubject::Violations found = subject_.CheckRebooted(rebooted, acted);
      if (found.empty()) return;
      Report(found, disk, absl::StrCat(when, "; on the disk, of what was not synced: ", kept));
    });
  }

  void Report(const CrashSubject::Violations& found, const CrashFileSystem& disk, std::string_view when) {
    for (const std::string& what : found) {
      if (IsEnough()) return;
      tally_.violations.push_back(absl::StrCat("[", name_, "] ", what, "\n  ", when, "\n", disk.Log(), "\n"));
    }
  }

  const std::string_view name_;
  CrashSubject& subject_;
  CrashTally tally_;
};

}  // namespace

CrashTally& CrashTally::operator+=(CrashTally other) {
  crash_points += other.crash_points;
  states += other.states;
  std::move(other.violations.begin(), other.violations.end(), std::back_inserter(violations));
  return *this;
}

CrashTally EnumerateCrashes(std::string_view name, CrashSubject& subject) { return Enumeration(name, subject).Run(); }

}  // namespace cohort::testing
