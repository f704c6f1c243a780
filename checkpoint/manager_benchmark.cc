// What CheckpointManager adds to the MainOnlySaver of the same bytes, and to the loading of the same state.
//
//   bazel run -c opt //checkpoint:manager_benchmark -- --directory=/tmp
//
// The saver replaces its file, and the manager keeps one checkpoint: with both the old state is there until the new one is durable.
// What the manager removes goes off the training path, and is not timed.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/full.h"
#include "ATen/ops/zeros_like.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/testing/contenders.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

ABSL_FLAG(std::string, directory, "",
          "Where to write; its file system is what is measured. By default TEST_TMPDIR or /tmp.");
ABSL_FLAG(int, mib, 1024, "Size of the large state.");
ABSL_FLAG(int, rounds, 7, "How often each contender runs with the large state; with the small one ten times as often.");
ABSL_FLAG(bool, smoke, false, "One short round, to see that it works.");

namespace cohort {
namespace {

using ::cohort::testing::Contender;
using ::cohort::testing::Measure;
using ::cohort::testing::Median;
using ::cohort::testing::Print;

constexpr int kNumTensors = 100;

NamedTensors MakeState(int64_t num_bytes) {
  NamedTensors state;
  for (int i = 0; i < kNumTensors; ++i) {
    state.emplace_back(absl::StrCat("layer", i, ".weight"),
                       at::full({num_bytes / kNumTensors / 4}, i + 0.5, at::kFloat));
  }
  return state;
}

// A run of one state, saved again and again, by a manager and by a saver.
class Run {
 public:
  Run(std::string directory, NamedTensors state)
      : directory_(std::move(directory)),
        state_(std::move(state)),
        group_(ProcessGroup::WorldOfOne()),
        saver_(group_.get()) {
    auto manager =
        CheckpointManager::Open(group_.get(), {.directory = directory_ + "/run", .retention = {.newest = 1}});
    ABSL_CHECK_OK(manager);
    manager_ = *std::move(manager);
  }

  Contender Saver() {
    return {"MainOnlySaver", [this] { ABSL_CHECK_OK(SaveBySaver()); }, [] { sync(); }};
  }
  Contender Manager() {
    return {"CheckpointManager", [this] { ABSL_CHECK_OK(SaveByManager()); },
            [this] {
              ABSL_CHECK_OK(manager_->WaitForRemovals());
              sync();
            }};
  }
  Contender PlainLoad() {
    return {"ReadInto, verified", [this] { ABSL_CHECK_OK(Load(manager_->newest()->path + "/state.pt", true)); }};
  }
  Contender UnverifiedLoad() {
    return {"ReadInto, not verified", [this] { ABSL_CHECK_OK(Load(manager_->newest()->path + "/state.pt", false)); }};
  }
  Contender Resume(VerifyDepth depth, bool verify, std::string name) {
    return {
        std::move(name), [=, this] {
          ABSL_CHECK_OK(manager_->Resume(
              [&](const CheckpointInfo& checkpoint) { return Load(checkpoint.path + "/state.pt", verify); }, depth));
        }};
  }

 private:
  std::string File() const { return directory_ + "/state.pt"; }
  absl::Status SaveByManager() {
    return manager_
        ->Save({.step = ++step_}, "state.pt", [this](WritableFile& file) { return WriteTorchFile(state_, file); })
        .status();
  }
  absl::Status SaveBySaver() {
    return saver_.Save(File(), [this](WritableFile& file) { return WriteTorchFile(state_, file); }).status();
  }
  absl::Status Load(const std::string& path, bool verify) {
    ABSL_ASSIGN_OR_RETURN(const StateFile file, StateFile::Open(path));
    if (targets_.empty()) {
      for (size_t i = 0; i < state_.size(); ++i) targets_.emplace_back(i, at::zeros_like(state_[i].second));
    }
    return file.ReadInto(targets_, {.verify = verify});
  }

  const std::string directory_;
  const NamedTensors state_;
  std::vector<std::pair<size_t, at::Tensor>> targets_;
  std::unique_ptr<ProcessGroup> group_;
  MainOnlySaver saver_;
  std::unique_ptr<CheckpointManager> manager_;
  int64_t step_ = 0;
};

// Milliseconds that the second adds to the first, in the same round.
double Added(const std::vector<Contender>& contenders) {
  std::vector<double> added;
  for (size_t i = 0; i < contenders[0].seconds.size(); ++i) {
    added.push_back(contenders[1].seconds[i] - contenders[0].seconds[i]);
  }
  return 1e3 * Median(added);
}

void MeasureSaves(const std::string& what, const std::string& directory, int64_t num_bytes, int rounds) {
  ABSL_CHECK(std::filesystem::create_directory(directory)) << directory;
  Run run(directory, MakeState(num_bytes));
  std::vector<Contender> saves = {run.Saver(), run.Manager()};
  Measure(saves, rounds);
  std::printf("\nsaving %s, %d rounds\n", what.c_str(), rounds);
  Print(saves);
  std::printf("added, median of the rounds: %.2f ms\n", Added(saves));

  std::vector<Contender> loads = {
      run.PlainLoad(), run.Resume(VerifyDepth::kManifest, true, "Resume, verified by ReadInto"),
      run.Resume(VerifyDepth::kChecksums, false, "Resume, verified by the manifest"), run.UnverifiedLoad()};
  Measure(loads, rounds);
  std::printf("\nloading %s, %d rounds\n", what.c_str(), rounds);
  Print(loads);
  std::printf("added, median of the rounds: %.2f ms\n", Added(loads));
}

std::string WhereToWrite() {
  if (std::string given = absl::GetFlag(FLAGS_directory); !given.empty()) return given;
  const char* const test_directory = std::getenv("TEST_TMPDIR");
  return test_directory == nullptr ? "/tmp" : test_directory;
}

void MeasureAll() {
  const bool smoke = absl::GetFlag(FLAGS_smoke);
  const int mib = smoke ? 8 : absl::GetFlag(FLAGS_mib);
  const int rounds = smoke ? 1 : absl::GetFlag(FLAGS_rounds);
  const std::string directory = absl::StrCat(WhereToWrite(), "/manager_benchmark.", getpid());
  ABSL_CHECK(std::filesystem::create_directory(directory)) << directory;
  std::printf("%s\n", directory.c_str());
  MeasureSaves("4 KB", directory + "/small", 4000, smoke ? 1 : 10 * rounds);
  MeasureSaves(absl::StrCat(mib, " MiB"), directory + "/large", int64_t{mib} << 20, rounds);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cohort::MeasureAll();
}
