// What refusing a hostile file takes: less than its size and 64 MiB.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/config.h"
#include "absl/functional/function_ref.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cohort/checkpoint/internal/json_writer.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/safetensors_reader.h"
#include "cohort/checkpoint/testing/files.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::cohort::testing::FreshDirectory;

constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kBeyondFile = 64 * kMiB;

// A sanitizer's allocator pads each block and keeps what is freed: then a test sees only that files are refused.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER) || defined(ABSL_HAVE_MEMORY_SANITIZER)
constexpr bool kIsMeasured = false;
#else
constexpr bool kIsMeasured = true;
#endif

int64_t Field(std::string_view field) {
  std::ifstream status("/proc/self/status");
  for (std::string name; status >> name;) {
    int64_t kib;
    if (name == field && status >> kib) return kib << 10;
  }
  ABSL_CHECK(false) << field;
  return 0;
}

// By how much memory grows, at its peak, while `work` runs in a process of its own, which no earlier work has left
// memory in.
int64_t PeakGrowth(absl::FunctionRef<void()> work) {
  int result[2];
  ABSL_PCHECK(pipe(result) == 0);
  const pid_t child = fork();
  ABSL_PCHECK(child >= 0);
  if (child == 0) {
    std::ofstream("/proc/self/clear_refs") << "5" << std::flush;  // the peak begins anew
    const int64_t before = Field("VmRSS:");
    ABSL_CHECK_LT(Field("VmHWM:") - before, 4 * kMiB) << "the peak was not reset";
    work();
    const int64_t growth = Field("VmHWM:") - before;
    ABSL_PCHECK(write(result[1], &growth, sizeof(growth)) == sizeof(growth));
    _exit(0);
  }
  close(result[1]);
  int64_t growth = 0;
  EXPECT_EQ(read(result[0], &growth, sizeof(growth)), static_cast<ssize_t>(sizeof(growth)));
  close(result[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return growth;
}

// A file: `begin`, `repeated` as often as fits into `num_bytes`, and `end`. With "#" there for the number of the
// repetition. Written piece by piece, so that this process stays small.
std::string MakeFile(std::string_view begin, std::string_view repeated, std::string_view end, int64_t num_bytes) {
  const std::string path = FreshDirectory() + "/file";
  std::ofstream file(path);
  file << "lengthof" << begin;
  const bool is_numbered = absl::StrContains(repeated, "#");
  std::string piece;
  for (int i = 0; file.tellp() < num_bytes;) {
    if (is_numbered) piece.clear();
    while (piece.size() < 65536) {
      piece += is_numbered ? absl::StrReplaceAll(repeated, {{"#", absl::StrCat(i++)}}) : std::string(repeated);
    }
    file << piece;
  }
  file << end;
  const uint64_t length = static_cast<uint64_t>(file.tellp()) - 8;
  file.seekp(0);
  for (int i = 0; i < 8; ++i) file.put(static_cast<char>(length >> (8 * i)));
  ABSL_CHECK(file.flush().good());
  return path;
}

// A file of ours, but for its state, which is `begin`, `repeated` as often as fits, and `end`.
std::string MakeOwnFile(std::string_view begin, std::string_view repeated, std::string_view end, int64_t num_bytes) {
  std::string state(begin);
  while (static_cast<int64_t>(state.size()) < num_bytes) state += repeated;
  state += end;
  HeaderChecksum checksum;
  checksum.AddMetadata(kFormatKey, kFormat);
  checksum.AddMetadata(kStateKey, state);
  checksum.EndMetadata();
  std::string json = R"({"__metadata__":{"cohort.format":"1","cohort.state":)";
  AppendJsonString(state, json);
  absl::StrAppend(&json, R"(,"cohort.checksums":"","cohort.header_checksum":")", ChecksumDigits(checksum.With("")),
                  "\"}}");
  return MakeFile(json, "", "", 0);
}

void ExpectRefusedCheaply(std::string_view what, const std::string& path, std::string_view message) {
  std::ifstream file(path, std::ios::ate);
  const int64_t size = file.tellg();
  const int64_t growth = PeakGrowth([&] {
    const absl::StatusOr<std::unique_ptr<RandomAccessFile>> opened = OpenRandomAccessFile(path);
    ABSL_CHECK(opened.ok());
    const absl::Status status = ReadSafetensors(**opened).status();
    ABSL_CHECK(status.code() == absl::StatusCode::kInvalidArgument && absl::StrContains(status.message(), message))
        << what << ": " << status;
  });
  ::testing::Test::RecordProperty(std::string(what), absl::StrCat(growth / kMiB, " MiB for ", size / kMiB));
  if (kIsMeasured) {
    EXPECT_LT(growth, size + kBeyondFile) << what << ": " << growth / kMiB << " MiB";
  }
  unlink(path.c_str());
}

TEST(SafetensorsMemoryTest, TheDetectorFindsACopyTooMany) {
  const auto take = [](int64_t num_bytes) {
    return PeakGrowth([num_bytes] { ABSL_CHECK_EQ(std::vector<char>(num_bytes, 1).back(), 1); });
  };
  EXPECT_GT(take(kBeyondFile + kMiB), kBeyondFile);
  if (kIsMeasured) {
    EXPECT_LT(take(kBeyondFile - 2 * kMiB), kBeyondFile);
  }
}

TEST(SafetensorsMemoryTest, LongStrings) {
  for (const int64_t size : {8 * kMiB + 100, 9 * kMiB, 17 * kMiB, 80 * kMiB}) {
    const bool fits = size < 10 * kMiB;
    const std::string_view message = fits ? "not JSON" : "memory";
    ExpectRefusedCheaply("no end", MakeFile("{\"", "x", "", size), message);
    ExpectRefusedCheaply("not UTF-8 at the end", MakeFile(R"({"__metadata__":{"a":")", "x", "\xff\"}}", size), message);
    ExpectRefusedCheaply("a key", MakeFile("{\"", "x", "\":1}", size), "");
  }
}

TEST(SafetensorsMemoryTest, ManySmallThings) {
  const int64_t size = 30 * kMiB;
  ExpectRefusedCheaply("metadata", MakeFile(R"({"__metadata__":{"a":"")", R"(,"#":"")", "}}", size), "memory");
  ExpectRefusedCheaply("tensors", MakeFile("{", R"("#":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)", "}", size),
                       "");
  ExpectRefusedCheaply(
      "tensors", MakeFile("{", R"("#":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)", "}", 2 * size), "memory");
  ExpectRefusedCheaply("sizes", MakeFile(R"({"a":{"shape":[1)", ",1", "]}}", size), "memory");
  ExpectRefusedCheaply("lists", MakeFile("{\"a\":", "[", "", size), "has to be an object");
}

TEST(SafetensorsMemoryTest, StatesThatTakeManyTimesTheirText) {
  const int64_t size = 4 * kMiB;
  ExpectRefusedCheaply("lists", MakeOwnFile("[1", ",[]", "]", size), "memory");
  ExpectRefusedCheaply("numbers", MakeOwnFile("[1", ",1", "]", size), "memory");
  ExpectRefusedCheaply("lists of one", MakeOwnFile("[1", ",[1]", "]", size), "memory");
  ExpectRefusedCheaply("dicts", MakeOwnFile("[1", R"(,{"":0})", "]", size), "memory");
  ExpectRefusedCheaply("tuples", MakeOwnFile("[1", R"(,{"$tuple":[1]})", "]", 2 * size), "");
  ExpectRefusedCheaply("items", MakeOwnFile(R"({"$dict":[[0,0])", ",[1,1]", "]}", size), "");
  ExpectRefusedCheaply("strings", MakeOwnFile("[1", R"(,"1234567890123456")", "]", 2 * size), "");
  ExpectRefusedCheaply("complex", MakeOwnFile("[1", R"(,{"$complex":[1.0,1.0]})", "", 2 * size), "");
  ExpectRefusedCheaply("nested", MakeOwnFile("", "[", "", size), "deep");
}

}  // namespace
}  // namespace cohort::internal
