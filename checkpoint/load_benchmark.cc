// How long a load takes, against the limit: a plain read of the same bytes into memory that has been touched.
//
//   bazel run -c opt //checkpoint:load_benchmark -- --directory=/tmp
//
// The contenders take turns within each round, in an order of its own; a ratio is the median of the rounds' ratios. The
// files are in the page cache. Then: how long it takes to open a large file, and a file of very many tensors.

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/ops/full.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

ABSL_FLAG(std::string, directory, "",
          "Where the files lie; its file system is what is measured. By default TEST_TMPDIR or /tmp.");
ABSL_FLAG(int, mib, 1024, "Size of the state.");
ABSL_FLAG(int, many, 100000, "Number of tensors of the file of very many.");
ABSL_FLAG(int, rounds, 7, "How often each contender runs.");
ABSL_FLAG(bool, smoke, false, "One short round, to see that it works.");

namespace cohort {
namespace {

constexpr int kNumTensors = 100;

using State = c10::impl::GenericDict;

State MakeState(int num_tensors, int64_t floats) {
  State state(c10::AnyType::get(), c10::AnyType::get());
  for (int i = 0; i < num_tensors; ++i) {
    state.insert(absl::StrCat("layer", i, ".weight"), at::full({floats}, i + 0.5, at::kFloat));
  }
  return state;
}

void Save(const std::string& path, const State& state, StateFormat format) {
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  const auto write = [&](WritableFile& file) {
    return format == StateFormat::kTorch ? WriteTorchFile(c10::IValue(state), file)
                                         : WriteSafetensorsFile(c10::IValue(state), {}, file);
  };
  ABSL_CHECK_OK(MainOnlySaver(group.get()).Save(path, write));
}

StateFile Open(const std::string& path) {
  absl::StatusOr<StateFile> file = StateFile::Open(path);
  ABSL_CHECK_OK(file);
  return *std::move(file);
}

using Targets = std::vector<std::pair<size_t, at::Tensor>>;

Targets MakeTargets(int64_t floats) {
  Targets targets;
  for (size_t i = 0; i < kNumTensors; ++i) targets.emplace_back(i, at::full({floats}, -1.0, at::kFloat));
  return targets;
}

void ReadPlainly(const std::string& path, const Targets& targets) {
  const int fd = open(path.c_str(), O_RDONLY);
  ABSL_PCHECK(fd >= 0) << path;
  for (const auto& [i, tensor] : targets) {
    char* memory = static_cast<char*>(tensor.mutable_data_ptr());
    for (int64_t rest = static_cast<int64_t>(tensor.nbytes()); rest > 0;) {
      const ssize_t size = read(fd, memory, rest);
      ABSL_PCHECK(size > 0) << path;
      memory += size;
      rest -= size;
    }
  }
  close(fd);
}

struct Contender {
  std::string name;
  std::function<void()> run;
  std::vector<double> seconds = {};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Measure(std::vector<Contender> contenders, int rounds, double mib) {
  std::mt19937 random(1);
  std::vector<size_t> order(contenders.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      const double seconds = Seconds(contenders[i].run);
      if (round >= 0) contenders[i].seconds.push_back(seconds);
    }
  }
  std::printf("%-44s %9s %9s %9s %8s %9s\n", "", "median s", "min", "max", "MiB/s", "of plain");
  for (const Contender& contender : contenders) {
    std::vector<double> ratios;
    for (size_t i = 0; i < contender.seconds.size(); ++i) {
      ratios.push_back(contenders[0].seconds[i] / contender.seconds[i]);
    }
    const auto [least, most] = std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    const double median = Median(contender.seconds);
    std::printf("%-44s %9.4f %9.4f %9.4f %8.0f %9.2f\n", contender.name.c_str(), median, *least, *most, mib / median,
                Median(ratios));
  }
}

std::string WhereToWrite() {
  if (std::string given = absl::GetFlag(FLAGS_directory); !given.empty()) return given;
  const char* const test_directory = std::getenv("TEST_TMPDIR");
  return test_directory == nullptr ? "/tmp" : test_directory;
}

void Run() {
  const bool smoke = absl::GetFlag(FLAGS_smoke);
  const int64_t mib = smoke ? 8 : absl::GetFlag(FLAGS_mib);
  const int rounds = smoke ? 1 : absl::GetFlag(FLAGS_rounds);
  const std::string directory = absl::StrCat(WhereToWrite(), "/load_benchmark.", getpid());
  ABSL_CHECK(std::filesystem::create_directory(directory)) << directory;
  const std::string torch = directory + "/m.pt";
  const std::string safetensors = directory + "/m.safetensors";

  const int64_t floats = (mib << 20) / kNumTensors / 4;
  {
    const State state = MakeState(kNumTensors, floats);
    Save(torch, state, StateFormat::kTorch);
    Save(safetensors, state, StateFormat::kSafetensors);
  }
  const Targets targets = MakeTargets(floats);
  const auto into = [&](const std::string& path, const ReadOptions& options) {
    return [&targets, path, options] { ABSL_CHECK_OK(Open(path).ReadInto(targets, options)); };
  };
  const auto fresh = [&](const std::string& path, bool map) {
    return [path, map] { ABSL_CHECK_OK(Open(path).Read({.map = map})); };
  };
  std::printf("%d MiB in %d tensors, %s, %d rounds, %d threads\n", static_cast<int>(mib), kNumTensors, directory.c_str(),
              rounds, at::get_num_threads());
  Measure({{"plain read into touched memory", [&] { ReadPlainly(torch, targets); }},
           {".pt into touched memory, verified", into(torch, {.verify = true})},
           {".pt into touched memory, not verified", into(torch, {.verify = false})},
           {"safetensors into touched memory, verified", into(safetensors, {.verify = true})},
           {"safetensors into touched memory, mapped", into(safetensors, {.map = true})},
           {".pt into fresh memory, verified", fresh(torch, false)},
           {"safetensors into fresh memory, verified", fresh(safetensors, false)},
           {".pt mapped", fresh(torch, true)},
           {"safetensors mapped", fresh(safetensors, true)},
           {".pt, verified only", [&] { ABSL_CHECK_OK(Open(torch).Verify()); }}},
          rounds, static_cast<double>(mib));
  std::filesystem::remove(torch);
  std::filesystem::remove(safetensors);

  const int many = smoke ? 1000 : absl::GetFlag(FLAGS_many);
  const State small = MakeState(many, 10);
  std::printf("\n%d tensors of 10 floats\n", many);
  std::vector<Contender> contenders;
  for (const auto& [path, format] : {std::pair(torch, StateFormat::kTorch), {safetensors, StateFormat::kSafetensors}}) {
    const std::string name = format == StateFormat::kTorch ? ".pt" : "safetensors";
    contenders.push_back({name + ", saved", [&small, path, format] { Save(path, small, format); }});
    Save(path, small, format);
    contenders.push_back({name + ", opened", [path] { Open(path); }});
    contenders.push_back({name + ", read", fresh(path, false)});
  }
  Measure(contenders, rounds, many * 40.0 / (1 << 20));
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cohort::Run();
}
