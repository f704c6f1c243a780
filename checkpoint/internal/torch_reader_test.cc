#include "cohort/checkpoint/internal/torch_reader.h"

#include <sys/resource.h>

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/config.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/state_pickle.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/test_archive.h"
#include "cohort/checkpoint/testing/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::ReadFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<StoredState> Read(std::string_view bytes) { return ReadTorchState(*MemoryAsFile(bytes)); }

auto Refuses(std::string_view why) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)); }

// A file that Python's torch.save wrote, or that it refuses to read: see testdata/make.py.
std::string Sample(std::string_view name) {
  return ReadFile(absl::StrCat(std::getenv("TEST_SRCDIR"), "/", std::getenv("TEST_WORKSPACE"),
                               "/checkpoint/internal/testdata/", name));
}

// Text that holds the state, and the bytes of every storage with what their checksum says of them. This is all that a reader of
// the file can see.
std::string Everything(std::string_view bytes, const StoredState& state) {
  std::string text = TextOf(state);
  for (const StoredBytes& storage : state.storages) {
    const std::string_view data = bytes.substr(storage.begin, storage.num_bytes);
    const bool is_right = !storage.crc32.has_value() || *storage.crc32 == Crc32(data);
    absl::StrAppend(&text, "\n", is_right ? data : "damaged");
  }
  return text;
}

// The pickle of {"w": a float32 tensor [2, 3], "b": a bool tensor [2]}.
StoredState SmallState() {
  StoredState state;
  state.tensors = {{.dtype = Dtype::kFloat32, .sizes = {2, 3}, .strides = {3, 1}, .storage = 0},
                   {.dtype = Dtype::kBool, .sizes = {2}, .strides = {1}, .storage = 1}};
  state.storages = {{.num_bytes = 24}, {.num_bytes = 2}};
  state.tree = {StateDict{{{"w", {TensorIndex{0}}}, {"b", {TensorIndex{1}}}, {"step", {int64_t{7}}}}}};
  return state;
}
const std::vector<std::string>& SmallStorages() {
  static const auto& storages = *new std::vector<std::string>{"abcdefghijklmnopqrstuvwx", std::string("\x01\0", 2)};
  return storages;
}
std::string SmallFile() { return TorchFileOf(PickleState(SmallState()), SmallStorages()); }

// ---- Files of Python's ----

constexpr char kEverything[] =
    "{\"none\": None, \"true\": True, \"false\": False, \"ints\": [0, 255, 256, 65535, 65536, -1, 2147483648, "
    "-2147483648, 4611686018427387904, -9223372036854775808, 9223372036854775807], \"floats\": [0.10000000000000001, "
    "-0, inf, 9.9999999999999694e-311], \"complex\": (1+2j), \"text\": \"snow☃\\n\", \"tuples\": [(), (1), (1, 2), (1, "
    "2, 3), (1, 2, 3, 4)], \"empty\": [[], {}], 5: \"an int as key\", \"size\": (2, 3), \"device\": \"cuda:1\", "
    "\"parameter\": tensor#0(float32, [2], [1], 0, storage 0, grad), \"tied\": tensor#1(float32, [6], [1], 0, storage "
    "1), \"tied again\": tensor#1(float32, [6], [1], 0, storage 1), \"transposed\": tensor#2(float32, [3, 2], [1, 3], "
    "0, storage 1), \"slice\": tensor#3(float32, [2], [1], 4, storage 1), \"ordered\": {\"a\": 1}, \"conj\": "
    "tensor#4(complex64, [1], [1], 0, storage 2, conj), \"float8\": tensor#5(float8_e5m2, [2], [1], 0, storage 3), "
    "\"none at all\": tensor#6(float32, [0, 3], [3, 1], 0, storage 4), \"scalar\": tensor#7(float32, [], [], 0, "
    "storage "
    "5)}";

TEST(TorchReaderTest, ReadsWhatTorchSaveWrites) {
  for (std::string_view name : {"everything.pt", "everything_protocol1.pt", "everything_protocol4.pt"}) {
    const std::string bytes = Sample(name);
    const absl::StatusOr<StoredState> state = Read(bytes);
    ASSERT_THAT(state, IsOk()) << name;
    EXPECT_EQ(Everything(bytes, *state),
              absl::StrCat(kEverything, "\n", std::string("\0\0\x80\x3f\0\0\x80\x3f", 8), "\n",
                           std::string("\0\0\0\0\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40", 24), "\n",
                           std::string("\0\0\x80\x3f\0\0\0\x40", 8), "\n\x3c\x3c\n\n", std::string("\0\0\xc0\x3f", 4)))
        << name;
    for (const StoredBytes& storage : state->storages) EXPECT_TRUE(storage.crc32.has_value());
  }
}

TEST(TorchReaderTest, ReadsAStateDict) {
  const absl::StatusOr<StoredState> state = Read(Sample("module_state.pt"));
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(TextOf(*state), "{\"weight\": tensor#0(float32, [1], [1], 0, storage 0)}");
}

TEST(TorchReaderTest, ReadsAFileWithoutChecksums) {
  const absl::StatusOr<StoredState> state = Read(Sample("no_checksums.pt"));
  ASSERT_THAT(state, IsOk());
  EXPECT_EQ(TextOf(*state), "{\"weight\": tensor#0(float32, [1], [1], 0, storage 0)}");
  ASSERT_EQ(state->storages.size(), 1u);
  EXPECT_EQ(state->storages[0].crc32, std::nullopt);
}

TEST(TorchReaderTest, SaysWhatAFileOfAnotherKindIsAndHowToConvertIt) {
  EXPECT_THAT(Read(Sample("legacy.pt")), AllOf(Refuses("before PyTorch 1.6"), Refuses("torch.save(torch.load(")));
  EXPECT_THAT(Read("L119547037146038801333356L\n.I1001\n."), Refuses("before PyTorch 1.6"));  // pickle_protocol=0
  EXPECT_THAT(Read(Sample("torchscript.pt")),
              AllOf(Refuses("a TorchScript archive"), Refuses("torch.save(torch.jit.load(")));
  EXPECT_THAT(Read(Sample("module.pt")), AllOf(Refuses("\"torch.nn.modules.linear.Identity\", which is not data"),
                                               Refuses("state_dict()"), Refuses("entry \"module/data.pkl\"")));
  EXPECT_THAT(Read(Sample("sparse.pt")), Refuses("value \"a[0]\" is a sparse tensor; only dense tensors are held"));
  EXPECT_THAT(Read(Sample("quantized.pt")), Refuses("value \"a[0]\" is a quantized tensor; only dense tensors"));
  EXPECT_THAT(Read(Sample("meta.pt")), Refuses("value \"a[0]\" is a tensor on the device \"meta\""));

  EXPECT_THAT(Read(""), Refuses("empty"));
  EXPECT_THAT(Read("hello"), Refuses("not a .pt file"));
  EXPECT_THAT(Read("\x80\x02}."), Refuses("a bare pickle"));
  std::string tar(1024, '\0');
  tar.replace(257, 5, "ustar");
  EXPECT_THAT(Read(tar), Refuses("a tar archive"));
  EXPECT_THAT(Read(std::string("\x02\0\0\0\0\0\0\0{}", 10)), Refuses("a safetensors file"));
  EXPECT_THAT(Read(ZipOf({})), Refuses("an empty zip archive"));
  EXPECT_THAT(Read(ZipOf({{"a/b", "c"}})), Refuses("a zip archive of another kind"));
  EXPECT_THAT(Read(ZipOf({{"data.pkl", "N."}})), Refuses("a zip archive of another kind"));
  EXPECT_THAT(Read(ZipOf({{"x/archive_format", "pt2"}})), Refuses("an exported program"));
}

// ---- Files of ours ----

TEST(TorchReaderTest, ReadsWhatWeWrite) {
  const std::string bytes = SmallFile();
  const absl::StatusOr<StoredState> state = Read(bytes);
  ASSERT_THAT(state, IsOk());
  StoredState expected = SmallState();
  EXPECT_EQ(Everything(bytes, *state),
            absl::StrCat(TextOf(expected), "\n", SmallStorages()[0], "\n", SmallStorages()[1]));
}

TEST(TorchReaderTest, TakesAnyNameOfTheFolder) {
  EXPECT_THAT(Read(ZipOf({{"模型/data.pkl", "N."}, {"模型/version", "3"}})), IsOk());
  EXPECT_THAT(Read(ZipOf({{"a/data.pkl", "N."}, {"a/version", "3"}, {"b/data.pkl", "N."}})),
              Refuses("two pickles, in \"a/\" and \"b/\""));
  EXPECT_THAT(Read(ZipOf({{"a/data.pkl", "N."}, {"a/version", "3"}, {"a/b/data.pkl", "x"}})), IsOk());
}

TEST(TorchReaderTest, ChecksByteOrderAndVersion) {
  const auto file = [](std::string_view order, std::string_view version) {
    return ZipOf({{"a/data.pkl", "N."}, {"a/byteorder", std::string(order)}, {"a/version", std::string(version)}});
  };
  EXPECT_THAT(Read(file("little", "10\n")), IsOk());
  EXPECT_THAT(Read(file("big", "3\n")), Refuses("big-endian"));
  EXPECT_THAT(Read(file("middle", "3\n")), Refuses("byte order is \"middle\""));
  EXPECT_THAT(Read(file("", "3\n")), Refuses("byte order is \"\""));
  EXPECT_THAT(Read(file("little", "11\n")), Refuses("version is \"11\\n\"; 1 to 10"));
  EXPECT_THAT(Read(file("little", "three")), Refuses("version is \"three\""));
  EXPECT_THAT(Read(file(std::string(101, 'x'), "3")), Refuses("has 101 bytes"));
  EXPECT_THAT(Read(ZipOf({{"a/data.pkl", "N."}})), Refuses("version is missing"));
}

TEST(TorchReaderTest, RefusesEntriesThatTorchSaveDoesNotWrite) {
  EXPECT_THAT(Read(ZipOf({{"a/data.pkl", "N."}, {"a/version", "3"}, {"a/", ""}})), Refuses("\"a/\" is a folder"));
  EXPECT_THAT(Read(ZipOf({{"a/data.pkl", "N."}, {"a/version", "3"}, {"a/version", "3"}})), Refuses("two entries"));
}

TEST(TorchReaderTest, ComparesStoragesWithTheirEntries) {
  const std::string pickle = PickleState(SmallState());
  EXPECT_THAT(Read(TorchFileOf(pickle, {SmallStorages()[0]})), Refuses("storage \"1\" is missing"));
  EXPECT_THAT(Read(TorchFileOf(pickle, {"short", SmallStorages()[1]})),
              Refuses("entry \"archive/data/0\" has 5 bytes, and the pickle says that storage \"0\" has 24"));
}

TEST(TorchReaderTest, FindsDamageOfThePickle) {
  std::string bytes = SmallFile();
  bytes[bytes.find("step") + 1] = 'T';
  EXPECT_THAT(Read(bytes), StatusIs(absl::StatusCode::kDataLoss,
                                    AllOf(HasSubstr("\"archive/data.pkl\" is damaged"), HasSubstr("checksum"))));
}

// ---- Round trips ----

StateTree RandomTree(std::mt19937& random, StoredState& state, int depth) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  switch (below(depth > 4 ? 8 : 12)) {
    case 0:
      return {};
    case 1:
      return {below(2) == 0};
    case 2:
      return {static_cast<int64_t>((uint64_t{random()} << 32 | random()) >> below(64))};
    case 3:
      return {static_cast<double>(random()) / 7};
    case 4:
      return {std::complex<double>(below(9), below(9) / 2.0)};
    case 5:
      return {std::string(below(40), static_cast<char>('a' + below(26)))};
    case 6:
      if (!state.tensors.empty() && below(3) == 0) return {TensorIndex{below(state.tensors.size())}};
      [[fallthrough]];
    case 7: {
      const Dtype dtype = static_cast<Dtype>(below(static_cast<uint32_t>(Dtype::kFloat8E8M0FNU) + 1));
      const bool is_complex = absl::StartsWith(InfoOf(dtype).name, "complex");
      const int64_t rows = below(4);
      const int64_t offset = rows == 0 ? 0 : below(3);  // an empty tensor is read as one at 0
      state.storages.push_back({.num_bytes = (offset + rows * 2) * InfoOf(dtype).num_bytes});
      state.tensors.push_back({.dtype = dtype,
                               .sizes = {rows, 2},
                               .strides = {2, 1},
                               .offset = offset,
                               .storage = state.storages.size() - 1,
                               .conjugated = is_complex && below(2) == 0,
                               .negated = below(2) == 0,
                               .requires_grad = below(2) == 0});
      return {TensorIndex{state.tensors.size() - 1}};
    }
    case 8:
    case 9: {
      StateDict dict;
      for (uint32_t i = below(6); i > 0; --i) {
        StateKey key = below(2) == 0 ? StateKey(absl::StrCat("key.", i)) : StateKey(int64_t{i} - 3);
        dict.items.emplace_back(std::move(key), RandomTree(random, state, depth + 1));
      }
      return {std::move(dict)};
    }
    case 10: {
      StateList list;
      for (uint32_t i = below(6); i > 0; --i) list.items.push_back(RandomTree(random, state, depth + 1));
      return {std::move(list)};
    }
    default: {
      StateTuple tuple;
      for (uint32_t i = below(6); i > 0; --i) tuple.items.push_back(RandomTree(random, state, depth + 1));
      return {std::move(tuple)};
    }
  }
}

TEST(TorchReaderTest, ReadsBackAnyStateThatIsWritten) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  int num_tensors = 0;
  for (int i = 0; i < 300; ++i) {
    StoredState state;
    state.tree = RandomTree(random, state, 0);
    std::vector<std::string> storages;
    for (const StoredBytes& storage : state.storages) storages.emplace_back(storage.num_bytes, static_cast<char>(i));
    const absl::StatusOr<StoredState> read = Read(TorchFileOf(PickleState(state), storages));
    ASSERT_THAT(read, IsOk()) << TextOf(state);
    EXPECT_EQ(read->tree, state.tree);
    EXPECT_EQ(TextOf(*read), TextOf(state));
    num_tensors += static_cast<int>(state.tensors.size());
  }
  EXPECT_GT(num_tensors, 100);
}

// ---- Damaged files ----

// Reads a damaged file; it must be refused, or be seen to be damaged, or hold what the right one does.
void ExpectErrorOrTheSame(const std::string& damaged, const std::string& expected, std::string_view what) {
  const absl::StatusOr<StoredState> state = Read(damaged);
  if (!state.ok()) return;
  const std::string seen = Everything(damaged, *state);
  if (absl::StrContains(seen, "\ndamaged")) return;
  EXPECT_EQ(seen, expected) << what;
}

std::string Expected(const std::string& bytes) { return Everything(bytes, *Read(bytes)); }

TEST(TorchReaderTest, SeesEveryFlippedBit) {
  for (std::string bytes : {SmallFile(), Sample("module_state.pt")}) {
    const std::string expected = Expected(bytes);
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
      ExpectErrorOrTheSame(bytes, expected, absl::StrCat("bit ", bit));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    }
  }
}

TEST(TorchReaderTest, SeesThatAFileIsCut) {
  const std::string bytes = Sample("everything.pt");
  ASSERT_GT(bytes.size(), 800u);
  EXPECT_THAT(Read(bytes.substr(0, 0)), Refuses("empty"));
  for (size_t i = 1; i < 200; ++i) {
    const size_t size = i * bytes.size() / 200;
    EXPECT_THAT(Read(bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss)) << size;
  }
}

// Of the pickle, with a right checksum around it: no error may come from the archive alone.
TEST(TorchReaderTest, SurvivesAPickleOfRandomBytes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string pickle = PickleState(SmallState());
  int num_read = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string mutated = pickle;
    for (uint32_t n = 1 + random() % 3; n > 0; --n) mutated[random() % mutated.size()] = static_cast<char>(random());
    num_read += Read(TorchFileOf(mutated, SmallStorages())).ok() ? 1 : 0;
  }
  EXPECT_GT(num_read, 0);  // names, for instance, may be anything
  EXPECT_LT(num_read, 1000);
}

TEST(TorchReaderTest, SurvivesRandomMutations) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const std::string bytes = Sample("everything.pt");
  const std::string expected = Expected(bytes);
  for (int i = 0; i < 2000; ++i) {
    std::string mutated = bytes;
    switch (random() % 3) {
      case 0:
        for (uint32_t n = 1 + random() % 8; n > 0; --n) mutated[random() % bytes.size()] = static_cast<char>(random());
        break;
      case 1:
        mutated.erase(random() % bytes.size(), 1 + random() % 16);
        break;
      default:
        mutated.insert(random() % bytes.size(), bytes, random() % bytes.size(), 1 + random() % 16);
    }
    ExpectErrorOrTheSame(mutated, expected, absl::StrCat("mutation ", i));
  }
}

// ---- Sizes ----

// Peak of this process so far.
int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

TEST(TorchReaderTest, RefusesHostileFilesWithLittleMemory) {
  using std::string_view_literals::operator""sv;
  // Pickles of some megabytes that ask for as much memory as they can.
  std::vector<std::string> pickles;
  for (std::string_view operation : {"]"sv, "}"sv, "("sv, "N"sv, "h\0"sv, "]a"sv, "X\x01\0\0\0a"sv, "M\xff\xff"sv,
                                     "]q\1"sv, "N\x85"sv, "]\x94"sv, "h\0h\0\x86"sv, "ctorch\nfloat32\n"sv}) {
    std::string pickle("\x80\x04]q\0(", 6);
    while (pickle.size() < 3'000'000) pickle.append(operation);
    pickles.push_back(pickle);
  }
  const int64_t before = PeakBytes();
  int64_t largest = 0;
  for (const std::string& pickle : pickles) {
    const std::string bytes = TorchFileOf(pickle);
    largest = std::max<int64_t>(largest, static_cast<int64_t>(bytes.size()));
    EXPECT_FALSE(Read(bytes).ok());
  }
  // A sanitizer's allocator pads each block and keeps what is freed: then only that files are refused is seen.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
  // The archive itself is in memory here, and was there twice.
  EXPECT_LT(PeakBytes() - before, 3 * largest + (int64_t{64} << 20));
#else
  std::cout << "peak " << PeakBytes() - before << "\n";
#endif
}

TEST(TorchReaderTest, ReadsThousandsOfTensors) {
  constexpr int kTensors = 30'000;
  StoredState state;
  StateDict dict;
  for (size_t i = 0; i < kTensors; ++i) {
    state.storages.push_back({.num_bytes = 4});
    state.tensors.push_back({.sizes = {1}, .strides = {1}, .storage = i});
    dict.items.emplace_back(absl::StrCat("layer.", i, ".weight"), StateTree{TensorIndex{i}});
  }
  state.tree = {std::move(dict)};
  const std::string bytes = TorchFileOf(PickleState(state), std::vector<std::string>(kTensors, "1234"));
  const absl::StatusOr<StoredState> read = Read(bytes);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->tensors.size(), size_t{kTensors});
  EXPECT_EQ(read->tree, state.tree);
}

}  // namespace
}  // namespace cohort::internal
