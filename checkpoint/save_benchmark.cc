// How long a save takes, against the limit: a plain write and fsync of the same bytes.
//
//   bazel run -c opt //checkpoint:save_benchmark -- --directory=/tmp
//
// The contenders take turns within each round, in an order of its own; a ratio is the median of the rounds' ratios.
// Times of a disk move by 2x from one minute to the next, ratios within a round far less. The state is touched before
// the first round. Every contender makes a new file; removing the old one and flushing what is left of it is not timed.

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
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/ops/full.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/atomic_file.h"
#include "cohort/checkpoint/file_system.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"

ABSL_FLAG(std::string, directory, "",
          "Where to write; its file system is what is measured. By default TEST_TMPDIR or /tmp.");
ABSL_FLAG(int, mib, 1024, "Size of the state.");
ABSL_FLAG(int, rounds, 7, "How often each contender runs.");
ABSL_FLAG(bool, smoke, false, "One short round, to see that it works.");

namespace cohort {
namespace {

constexpr int kNumTensors = 100;

std::string_view BytesOf(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.nbytes())};
}

NamedTensors MakeState(int64_t num_bytes) {
  NamedTensors state;
  for (int i = 0; i < kNumTensors; ++i) {
    state.emplace_back(absl::StrCat("layer", i, ".weight"),
                       at::full({num_bytes / kNumTensors / 4}, i + 0.5, at::kFloat));
  }
  return state;
}

// What anybody would write, and no more: not safe against anything.
void WritePlainly(const std::string& path, const NamedTensors& state, bool early_writeback) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  ABSL_PCHECK(fd >= 0) << path;
  off_t offset = 0, started = 0;
  for (const auto& [name, tensor] : state) {
    for (std::string_view bytes = BytesOf(tensor); !bytes.empty();) {
      const ssize_t written = write(fd, bytes.data(), std::min(bytes.size(), size_t{8} << 20));
      ABSL_PCHECK(written > 0) << path;
      bytes.remove_prefix(written);
      offset += written;
      if (early_writeback && offset - started >= off_t{8} << 20) {
        sync_file_range(fd, started, offset - started, SYNC_FILE_RANGE_WRITE);
        started = offset;
      }
    }
  }
  ABSL_PCHECK(fsync(fd) == 0 && close(fd) == 0) << path;
}

absl::Status WriteAtomically(const std::string& path, const NamedTensors& state) {
  ABSL_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(*FileSystem::Posix(), path));
  for (const auto& [name, tensor] : state) ABSL_RETURN_IF_ERROR(file->Append(BytesOf(tensor)));
  ABSL_RETURN_IF_ERROR(file->Sync());
  return file->Publish();
}

absl::Status Save(const std::string& path, WritePayload write) {
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  return MainOnlySaver(group.get()).Save(path, write).status();
}

c10::IValue AsDict(const NamedTensors& state) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [name, tensor] : state) dict.insert(name, tensor);
  return dict;
}

struct Contender {
  std::string_view name;
  std::function<void(const std::string& path)> run;
  std::vector<double> seconds = {};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

void Print(const std::vector<Contender>& contenders, double mib) {
  std::printf("%-40s %8s %8s %8s %8s %8s\n", "", "median s", "min", "max", "MiB/s", "of plain");
  for (const Contender& contender : contenders) {
    std::vector<double> ratios;
    for (size_t i = 0; i < contender.seconds.size(); ++i) {
      ratios.push_back(contenders[0].seconds[i] / contender.seconds[i]);
    }
    const auto [least, most] = std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    const double median = Median(contender.seconds);
    std::printf("%-40s %8.3f %8.3f %8.3f %8.0f %8.2f\n", std::string(contender.name).c_str(), median, *least, *most,
                mib / median, Median(ratios));
  }
}

std::string WhereToWrite() {
  if (std::string given = absl::GetFlag(FLAGS_directory); !given.empty()) return given;
  const char* const test_directory = std::getenv("TEST_TMPDIR");
  return test_directory == nullptr ? "/tmp" : test_directory;
}

void Run() {
  const bool smoke = absl::GetFlag(FLAGS_smoke);
  const int mib = smoke ? 8 : absl::GetFlag(FLAGS_mib);
  const int rounds = smoke ? 1 : absl::GetFlag(FLAGS_rounds);
  const std::string directory = absl::StrCat(WhereToWrite(), "/save_benchmark.", getpid());
  ABSL_CHECK(std::filesystem::create_directory(directory)) << directory;
  const std::string path = directory + "/m.pt";
  const NamedTensors state = MakeState(int64_t{mib} << 20);

  std::vector<Contender> contenders = {
      {"plain write + fsync", [&](const std::string& p) { WritePlainly(p, state, /*early_writeback=*/false); }},
      {"plain write, early writeback + fsync",
       [&](const std::string& p) { WritePlainly(p, state, /*early_writeback=*/true); }},
      {"AtomicFile, the same bytes", [&](const std::string& p) { ABSL_CHECK_OK(WriteAtomically(p, state)); }},
      {"MainOnlySaver, .pt with checksums",
       [&](const std::string& p) {
         ABSL_CHECK_OK(Save(p, [&](WritableFile& file) { return WriteTorchFile(state, file); }));
       }},
      {"MainOnlySaver, safetensors with checksums",
       [&](const std::string& p) {
         ABSL_CHECK_OK(Save(p, [&](WritableFile& file) { return WriteSafetensorsFile(AsDict(state), {}, file); }));
       }},
  };
  const int64_t peak_before = PeakBytes();
  std::mt19937 random(1);
  std::vector<size_t> order = {0, 1, 2, 3, 4};
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      std::filesystem::remove(path);
      sync();
      const auto start = std::chrono::steady_clock::now();
      contenders[i].run(path);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (round >= 0) contenders[i].seconds.push_back(elapsed.count());
    }
  }
  std::filesystem::remove_all(directory);
  std::printf("%d MiB in %d tensors, %s, %d rounds\n", mib, kNumTensors, directory.c_str(), rounds);
  Print(contenders, mib);
  std::printf("peak memory beyond the state: %.1f MiB\n", static_cast<double>(PeakBytes() - peak_before) / (1 << 20));
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cohort::Run();
}
