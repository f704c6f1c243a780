// How long it takes to list a run of very many checkpoints and to plan what may go, against the limit: a plain loop
// that opens, reads and closes each manifest, and nothing else.
//
//   bazel run -c opt //checkpoint:run_directory_benchmark -- --directory=/tmp
//
// The kernel has all names and manifests in memory.

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"
#include "cohort/checkpoint/testing/contenders.h"
#include "cohort/checkpoint/testing/write_checkpoint.h"

ABSL_FLAG(std::string, directory, "",
          "Where to write; its file system is what is measured. By default TEST_TMPDIR or /tmp.");
ABSL_FLAG(int, checkpoints, 10000, "How many there are.");
ABSL_FLAG(int, rounds, 11, "How often each contender runs.");
ABSL_FLAG(bool, smoke, false, "One short round, to see that it works.");

namespace cohort {
namespace {

// A run that saved the loss and the accuracy, and whose every hundredth checkpoint is pinned. Returns the manifests'
// paths.
std::vector<std::string> WriteRun(const std::string& run, int num_checkpoints) {
  std::mt19937 random(1);
  std::vector<std::string> manifests;
  testing::WriteRunFile(run, "benchmark");
  for (int i = 0; i < num_checkpoints; ++i) {
    CheckpointInfo info;
    info.step = int64_t{100} * i;
    info.sequence = i + 1;
    info.saved = absl::UnixEpoch() + absl::Minutes(i);
    info.run_id = "benchmark";
    info.model = "12 tensors, 3456789 elements, 0123456789abcdef";
    info.world_size = 8;
    info.metrics = {{"accuracy", std::uniform_real_distribution<double>(0, 1)(random)},
                    {"loss", std::uniform_real_distribution<double>(0, 10)(random)}};
    info.pinned = i % 100 == 0;
    manifests.push_back(testing::WriteCheckpoint(run, info, {{"state.pt", ""}}).path + "/manifest.json");
  }
  return manifests;
}

void ReadPlainly(const std::vector<std::string>& paths) {
  char buffer[4096];
  for (const std::string& path : paths) {
    const int fd = open(path.c_str(), O_RDONLY);
    ABSL_PCHECK(fd >= 0 && read(fd, buffer, sizeof(buffer)) > 0) << path;
    close(fd);
  }
}

RunDirectory List(const std::string& run, size_t num_checkpoints) {
  absl::StatusOr<RunDirectory> found = ReadRunDirectory(run);
  ABSL_CHECK_OK(found);
  ABSL_CHECK_EQ(found->checkpoints.size(), num_checkpoints);
  return *std::move(found);
}

size_t Plan(const RunDirectory& run) {
  const size_t num_removed =
      PlanRetention(run.checkpoints,
                    {.newest = 10,
                     .one_every_steps = 10000,
                     .one_every = absl::Hours(24),
                     .best = {{.metric = "loss", .count = 5},
                              {.metric = "accuracy", .order = KeepBest::Order::kGreatest, .count = 5}}})
          .size();
  ABSL_CHECK_LT(num_removed, run.checkpoints.size());
  return num_removed;
}

std::string WhereToWrite() {
  if (std::string given = absl::GetFlag(FLAGS_directory); !given.empty()) return given;
  const char* const test_directory = std::getenv("TEST_TMPDIR");
  return test_directory == nullptr ? "/tmp" : test_directory;
}

void Run() {
  const bool smoke = absl::GetFlag(FLAGS_smoke);
  const int num_checkpoints = smoke ? 100 : absl::GetFlag(FLAGS_checkpoints);
  const int rounds = smoke ? 1 : absl::GetFlag(FLAGS_rounds);
  const std::string directory = absl::StrCat(WhereToWrite(), "/run_directory_benchmark.", getpid());
  ABSL_CHECK(std::filesystem::create_directory(directory)) << directory;
  const std::vector<std::string> manifests = WriteRun(directory, num_checkpoints);
  const RunDirectory listed = List(directory, manifests.size());

  std::vector<testing::Contender> contenders = {
      {"open, read and close each manifest", [&] { ReadPlainly(manifests); }},
      {"ReadRunDirectory", [&] { List(directory, manifests.size()); }},
      {"PlanRetention, every kind of rule", [&] { Plan(listed); }},
      {"ReadRunDirectory and PlanRetention", [&] { Plan(List(directory, manifests.size())); }},
  };
  testing::Measure(contenders, rounds);
  std::printf("%d checkpoints, %zu to be removed, %s, %d rounds\n", num_checkpoints, Plan(listed), directory.c_str(),
              rounds);
  testing::Print(contenders);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cohort::Run();
}
