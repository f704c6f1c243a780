// How long it takes to list a run of very many checkpoints and to plan what may go, against the limit: a plain loop
// that opens, reads and closes each manifest, and nothing else.
//
//   bazel run -c opt //checkpoint:run_directory_benchmark -- --directory=/tmp
//
// The contenders take turns within each round, in an order of its own; a ratio is the median of the rounds' ratios. The
// kernel has all names and manifests in memory.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/checkpoint_name.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/run_file.h"
#include "cohort/checkpoint/retention.h"
#include "cohort/checkpoint/run_directory.h"

ABSL_FLAG(std::string, directory, "",
          "Where to write; its file system is what is measured. By default TEST_TMPDIR or /tmp.");
ABSL_FLAG(int, checkpoints, 10000, "How many there are.");
ABSL_FLAG(int, rounds, 11, "How often each contender runs.");
ABSL_FLAG(bool, smoke, false, "One short round, to see that it works.");

namespace cohort {
namespace {

void WriteFile(const std::string& path, std::string_view contents) {
  std::ofstream file(path, std::ios::binary);
  file << contents;
  file.close();
  ABSL_CHECK(file.good()) << path;
}

// A run that saved the loss and the accuracy, and whose every hundredth checkpoint is pinned. Returns the manifests'
// paths.
std::vector<std::string> WriteRun(const std::string& run, int num_checkpoints) {
  std::mt19937 random(1);
  std::vector<std::string> manifests;
  WriteFile(run + "/run.json", internal::EncodeRunFile({.run_id = "benchmark", .created = absl::UnixEpoch()}));
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
    info.files = {{.name = "state.pt", .num_bytes = 0, .crc32 = 0}};
    const std::string path = absl::StrCat(run, "/", internal::CheckpointName(info.step, 1));
    ABSL_PCHECK(mkdir(path.c_str(), 0777) == 0) << path;
    WriteFile(path + "/state.pt", "");
    if (i % 100 == 0) WriteFile(path + "/pinned", "");
    manifests.push_back(path + "/manifest.json");
    WriteFile(manifests.back(), internal::EncodeManifest(info));
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

struct Contender {
  std::string_view name;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Print(const std::vector<Contender>& contenders) {
  std::printf("%-48s %9s %9s %9s %9s\n", "", "median ms", "min", "max", "x plain");
  for (const Contender& contender : contenders) {
    std::vector<double> ratios;
    for (size_t i = 0; i < contender.seconds.size(); ++i) {
      ratios.push_back(contender.seconds[i] / contenders[0].seconds[i]);
    }
    const auto [least, most] = std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    std::printf("%-48s %9.2f %9.2f %9.2f %9.2f\n", std::string(contender.name).c_str(), 1e3 * Median(contender.seconds),
                1e3 * *least, 1e3 * *most, Median(ratios));
  }
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

  std::vector<Contender> contenders = {
      {"open, read and close each manifest", [&] { ReadPlainly(manifests); }},
      {"ReadRunDirectory", [&] { List(directory, manifests.size()); }},
      {"PlanRetention, every kind of rule", [&] { Plan(listed); }},
      {"ReadRunDirectory and PlanRetention", [&] { Plan(List(directory, manifests.size())); }},
  };
  std::mt19937 random(1);
  std::vector<size_t> order = {0, 1, 2, 3};
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      const auto start = std::chrono::steady_clock::now();
      contenders[i].run();
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (round >= 0) contenders[i].seconds.push_back(elapsed.count());
    }
  }
  std::printf("%d checkpoints, %zu to be removed, %s, %d rounds\n", num_checkpoints, Plan(listed), directory.c_str(),
              rounds);
  Print(contenders);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cohort::Run();
}
