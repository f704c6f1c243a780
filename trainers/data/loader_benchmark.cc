// What reading a data set from a file costs a training loop: with and without reading ahead, from the page cache,
// from the disk, and from one that takes half as long as a step for each batch; and how much memory it takes on each of
// two ranks.
//
//   bazel run -c opt //trainers/data:loader_benchmark -- --directory=/tmp
//
// A step multiplies the batch by a matrix for about --step_ms, on one thread. The contenders take turns within each
// round, in an order of its own; "exposed" is the median, over the rounds, of what an epoch takes beyond the steps
// alone, in parts of the steps. Nothing is hidden where there is no second core.

#include <fcntl.h>
#include <sys/wait.h>
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
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ATen/Parallel.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/ops/mm.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/zeros.h"
#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/batch_loader.h"
#include "cohort/trainers/data/dataset_file.h"
#include "cohort/trainers/data/distributed_sampler.h"
#include "cohort/trainers/data/row_source.h"

ABSL_FLAG(std::string, directory, "", "Where the file lies. By default TEST_TMPDIR or /tmp.");
ABSL_FLAG(int, mib, 64, "Size of the data set.");
ABSL_FLAG(double, step_ms, 3, "How long a step takes, about.");
ABSL_FLAG(int, rounds, 7, "How often each contender runs.");
ABSL_FLAG(bool, smoke, false, "One short round, to see that it works.");

namespace cohort {
namespace {

constexpr int64_t kColumns = 1024;  // floats: a row has 4 KiB
constexpr int64_t kBatch = 64;      // rows, 256 KiB

double Seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void MakeFile(const std::string& path, int64_t num_rows) {
  c10::impl::GenericDict data(c10::StringType::get(), c10::TensorType::get());
  data.insert("features", at::rand({num_rows, kColumns}));
  data.insert("targets", at::zeros({num_rows}, at::kLong));
  const std::unique_ptr<ProcessGroup> group = ProcessGroup::WorldOfOne();
  ABSL_CHECK_OK(MainOnlySaver(group.get()).Save(path, [&](WritableFile& file) {
    return WriteSafetensorsFile(c10::IValue(data), {}, file);
  }));
}

// What is in the page cache of the file is forgotten.
void Forget(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ABSL_PCHECK(fd >= 0);
  ABSL_CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(fd);
}

std::unique_ptr<RowSource> Open(const std::string& path, bool map) {
  absl::StatusOr<std::unique_ptr<RowSource>> rows = OpenDatasetFile(path, {.map = map});
  ABSL_CHECK_OK(rows);
  return *std::move(rows);
}

// Goes through an epoch in batches of kBatch rows a rank.
void Epoch(const RowSource& rows, int prefetch, int num_replicas, int rank,
           const std::function<void(const at::Tensor& features)>& use) {
  absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create({.num_items = rows.num_rows(),
                                                                           .num_replicas = num_replicas,
                                                                           .rank = rank,
                                                                           .data_checksum = rows.info().checksum});
  ABSL_CHECK_OK(sampler);
  absl::StatusOr<std::unique_ptr<BatchLoader>> loader =
      BatchLoader::Create(rows, *sampler, {.items_of_all = kBatch * num_replicas, .prefetch = prefetch});
  ABSL_CHECK_OK(loader);
  while (true) {
    absl::StatusOr<std::optional<LoadedBatch>> batch = (*loader)->Next();
    ABSL_CHECK_OK(batch);
    if (!batch->has_value()) return;
    use((*batch)->rows.features);
  }
}

// A source on a slow disk: each batch takes so long more, in which the processor has nothing to do.
class Slow : public RowSource {
 public:
  Slow(const RowSource& source, double seconds)
      : RowSource(source.info()), source_(source), wait_(std::chrono::duration<double>(seconds)) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    std::this_thread::sleep_for(wait_);
    ABSL_ASSIGN_OR_RETURN(batch, source_.Read(rows));
    return absl::OkStatus();
  }

  const RowSource& source_;
  const std::chrono::duration<double> wait_;
};

// ---- Time ----

struct Contender {
  std::string name;
  std::function<void()> prepare, run;
  std::vector<double> seconds = {};
};

void MeasureTime(const std::string& path, int rounds, double step_seconds) {
  const at::Tensor weight = at::rand({kColumns, 256}), some = at::rand({kBatch, kColumns});
  const auto multiply = [&](int times) {
    for (int i = 0; i < times; ++i) at::mm(some, weight);
  };
  multiply(200);  // to be warm
  const double once = Seconds([&] { multiply(200); }) / 200;
  const int times = std::max(1, static_cast<int>(step_seconds / once));
  const auto step = [&](const at::Tensor& features) {
    for (int i = 0; i < times; ++i) at::mm(features, weight);
  };

  const std::unique_ptr<RowSource> read = Open(path, false), mapped = Open(path, true);
  const Slow slow(*read, step_seconds / 2);
  const auto epoch = [&](const RowSource& rows, int prefetch) {
    return [&rows, prefetch, &step] { Epoch(rows, prefetch, 1, 0, step); };
  };
  const auto keep = [] {};
  const auto forget = [&path] { Forget(path); };
  std::vector<Contender> contenders = {{"the steps alone", keep,
                                        [&] {
                                          for (int64_t i = 0; i < read->num_rows() / kBatch; ++i) step(some);
                                        }},
                                       {"from the page cache, no reading ahead", keep, epoch(*read, 0)},
                                       {"from the page cache, 2 batches ahead", keep, epoch(*read, 2)},
                                       {"from the page cache, mapped, no reading ahead", keep, epoch(*mapped, 0)},
                                       {"from the page cache, mapped, 2 batches ahead", keep, epoch(*mapped, 2)},
                                       {"from a slow disk, no reading ahead", keep, epoch(slow, 0)},
                                       {"from a slow disk, 2 batches ahead", keep, epoch(slow, 2)},
                                       {"from the disk, no reading ahead", forget, epoch(*read, 0)},
                                       {"from the disk, 2 batches ahead", forget, epoch(*read, 2)},
                                       {"from the disk, 8 batches ahead", forget, epoch(*read, 8)}};
  std::mt19937 random(1);
  std::vector<size_t> order(contenders.size());
  std::iota(order.begin(), order.end(), 0);
  for (int round = -1; round < rounds; ++round) {  // the first one warms up
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      contenders[i].prepare();
      const double seconds = Seconds(contenders[i].run);
      if (round >= 0) contenders[i].seconds.push_back(seconds);
      Epoch(*read, 0, 1, 0, [](const at::Tensor&) {});  // into the page cache again
    }
  }
  std::printf("%-48s %9s %9s %9s %9s\n", "", "median s", "min", "max", "exposed");
  for (const Contender& contender : contenders) {
    std::vector<double> exposed;
    for (size_t i = 0; i < contender.seconds.size(); ++i) {
      exposed.push_back(contender.seconds[i] / contenders[0].seconds[i] - 1);
    }
    const auto [least, most] = std::minmax_element(contender.seconds.begin(), contender.seconds.end());
    std::printf("%-48s %9.4f %9.4f %9.4f %9.3f\n", contender.name.c_str(), Median(contender.seconds), *least, *most,
                Median(exposed));
  }
}

// ---- Memory ----

// Of this process, in MiB: `field` of smaps_rollup, such as "Anonymous", which no file is behind.
double Memory(const std::string& field) {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string line; std::getline(rollup, line);) {
    if (line.starts_with(field + ":")) return std::atof(line.c_str() + field.size() + 1) / 1024;
  }
  ABSL_CHECK(false) << field;
  return 0;
}

// A rank that goes through its half of an epoch; it is a process of its own. Prints by how much its memory has grown.
void Rank(const std::string& path, const std::string& how, int rank) {
  const double before = Memory("Anonymous");
  {
    const std::unique_ptr<RowSource> rows = Open(path, how == "mapped");
    std::vector<at::Tensor> copies;
    Epoch(*rows, 2, 2, rank, [&](const at::Tensor& features) {
      if (how == "kept in memory") copies.push_back(features.clone());
    });
    std::printf("%-20s rank %d: %7.1f MiB of its own, %7.1f MiB of the file in its address space\n", how.c_str(), rank,
                Memory("Anonymous") - before, Memory("Rss") - Memory("Anonymous"));
    std::fflush(stdout);
  }
  std::_Exit(0);
}

void MeasureMemory(const std::string& path) {
  for (const std::string how : {"read", "mapped", "kept in memory"}) {
    for (int rank = 0; rank < 2; ++rank) {
      const pid_t child = fork();
      ABSL_PCHECK(child >= 0);
      if (child == 0) Rank(path, how, rank);
    }
    for (int rank = 0; rank < 2; ++rank) {
      int status;
      ABSL_PCHECK(wait(&status) >= 0);
      ABSL_CHECK_EQ(status, 0);
    }
  }
}

void Run() {
  at::set_num_threads(1);  // also: a fork takes no worker threads along
  const bool smoke = absl::GetFlag(FLAGS_smoke);
  const int64_t mib = smoke ? 4 : absl::GetFlag(FLAGS_mib);
  const int rounds = smoke ? 1 : absl::GetFlag(FLAGS_rounds);
  std::string directory = absl::GetFlag(FLAGS_directory);
  const char* const test_directory = std::getenv("TEST_TMPDIR");
  if (directory.empty()) directory = test_directory != nullptr ? test_directory : "/tmp";
  const std::string path = absl::StrCat(directory, "/loader_benchmark.", getpid(), ".safetensors");
  const int64_t num_rows = (mib << 20) / (kColumns * 4) / kBatch * kBatch;
  MakeFile(path, num_rows);
  std::printf("%d MiB in %d rows of %d floats, batches of %d rows, %s, %d rounds\n\n", static_cast<int>(mib),
              static_cast<int>(num_rows), static_cast<int>(kColumns), static_cast<int>(kBatch), path.c_str(), rounds);
  std::fflush(stdout);
  MeasureMemory(path);  // first: the processes are copies of this one, which has no other threads yet
  std::printf("\n");
  MeasureTime(path, rounds, absl::GetFlag(FLAGS_step_ms) / 1000);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  cohort::Run();
}
