#include "cohort/checkpoint/internal/safetensors_layout.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/random_state_tree.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/safetensors_reader.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/python.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lzma.h"

namespace cohort::internal {
namespace {

using ::absl_testing::StatusIs;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::RunPython;
using ::cohort::testing::WriteFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

uint32_t Crc32(std::string_view bytes) {
  return lzma_crc32(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), 0);
}

// A state with its data.
struct Saved {
  StateTree tree;
  std::vector<TensorShape> shapes;
  std::vector<std::string> data;  // of each tensor
  SafetensorsMetadata metadata;
};

StateTree Dict(std::vector<StateItem> items) { return {StateDict{std::move(items)}}; }

size_t AddTensor(Dtype dtype, std::vector<int64_t> sizes, Saved& saved) {
  const size_t num_bytes = static_cast<size_t>(*NumBytes(dtype, sizes));
  std::string data(num_bytes, '\0');
  for (size_t i = 0; i < num_bytes; ++i) data[i] = static_cast<char>(7 * i + saved.data.size());
  saved.shapes.push_back({dtype, std::move(sizes)});
  saved.data.push_back(std::move(data));
  return saved.data.size() - 1;
}

// As a writer does it: in the order of the layout, the checksums last.
absl::StatusOr<std::string> Write(const Saved& saved) {
  ABSL_ASSIGN_OR_RETURN(const SafetensorsLayout layout, LayOutSafetensors(saved.tree, saved.shapes, saved.metadata));
  std::string file = layout.header;
  std::vector<uint32_t> crc32s(saved.data.size());
  for (const size_t index : layout.order) {
    EXPECT_EQ(layout.offsets[index], static_cast<int64_t>(file.size()));
    EXPECT_EQ(file.size() % InfoOf(saved.shapes[index].dtype).num_bytes, 0) << "not aligned";
    file += saved.data[index];
    crc32s[index] = Crc32(saved.data[index]);
  }
  EXPECT_EQ(layout.num_bytes, static_cast<int64_t>(file.size()));
  const SafetensorsLayout::Overwrite overwrite = layout.Checksums(crc32s);
  file.replace(overwrite.offset, overwrite.bytes.size(), overwrite.bytes);
  return file;
}

// As a loader does it, checksums included. Tensors are in the order of the header, as the tree's TensorIndex says.
absl::StatusOr<Saved> Load(std::string_view file) {
  ABSL_ASSIGN_OR_RETURN(SafetensorsFile read, ReadSafetensors(*MemoryAsFile(file)));
  Saved loaded;
  loaded.tree = std::move(read.state.tree);
  loaded.metadata = std::move(read.metadata);
  for (const StoredTensor& tensor : read.state.tensors) {
    const StoredBytes& bytes = read.state.storages[tensor.storage];
    loaded.shapes.push_back({tensor.dtype, tensor.sizes});
    loaded.data.emplace_back(file.substr(bytes.begin, bytes.num_bytes));
    if (bytes.crc32.has_value() && Crc32(loaded.data.back()) != *bytes.crc32) return absl::DataLossError("data");
  }
  return loaded;
}

// With the tensors numbered as they come in the tree.
Saved Renumbered(Saved saved) {
  std::vector<size_t> order;
  const auto visit = [&](const auto& self, StateTree& tree) -> void {
    if (auto* tensor = std::get_if<TensorIndex>(&tree.value)) {
      size_t place = 0;
      while (place < order.size() && order[place] != tensor->index) ++place;
      if (place == order.size()) order.push_back(tensor->index);
      tensor->index = place;
    } else if (auto* list = std::get_if<StateList>(&tree.value)) {
      for (StateTree& item : list->items) self(self, item);
    } else if (auto* tuple = std::get_if<StateTuple>(&tree.value)) {
      for (StateTree& item : tuple->items) self(self, item);
    } else if (auto* dict = std::get_if<StateDict>(&tree.value)) {
      for (auto& [key, value] : dict->items) self(self, value);
    }
  };
  visit(visit, saved.tree);
  Saved result{std::move(saved.tree), {}, {}, std::move(saved.metadata)};
  for (const size_t index : order) {
    result.shapes.push_back(saved.shapes[index]);
    result.data.push_back(saved.data[index]);
  }
  return result;
}

bool Same(const Saved& a, const Saved& b) {
  bool same =
      SameBits(a.tree, b.tree) && a.data == b.data && a.metadata == b.metadata && a.shapes.size() == b.shapes.size();
  for (size_t i = 0; same && i < a.shapes.size(); ++i) {
    same = a.shapes[i].dtype == b.shapes[i].dtype && a.shapes[i].sizes == b.shapes[i].sizes;
  }
  return same;
}

Saved SmallState() {
  Saved saved;
  const size_t small = AddTensor(Dtype::kBool, {3}, saved);
  const size_t large = AddTensor(Dtype::kFloat64, {2}, saved);
  saved.tree =
      Dict({{"m", Dict({{"flags", {TensorIndex{small}}}, {"w", {TensorIndex{large}}}, {"tied", {TensorIndex{large}}}})},
            {"lr", {0.1}},
            {"epoch", {int64_t{3}}}});
  saved.metadata = {{"format", "pt"}};
  return saved;
}

TEST(SafetensorsLayoutTest, ADictOfTensorsIsAPlainFileInItsOrder) {
  Saved saved;
  const size_t first = AddTensor(Dtype::kUInt8, {1}, saved);
  const size_t second = AddTensor(Dtype::kFloat32, {2, 1}, saved);
  saved.tree = Dict({{"z", {TensorIndex{first}}}, {"a", {TensorIndex{second}}}});
  const absl::StatusOr<std::string> file = Write(saved);
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_THAT(*file, Not(HasSubstr("cohort.state")));
  EXPECT_THAT(*file, HasSubstr(R"("z":{"dtype":"U8","shape":[1],"data_offsets":[8,9]},)"
                               R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]})"));
  const absl::StatusOr<Saved> loaded = Load(*file);
  ASSERT_EQ(loaded.status(), absl::OkStatus());
  EXPECT_TRUE(Same(*loaded, saved));
}

TEST(SafetensorsLayoutTest, DataBeginAt64AndAreAligned) {
  Saved saved;
  std::vector<StateItem> items;
  for (const Dtype dtype : {Dtype::kUInt8, Dtype::kFloat16, Dtype::kFloat64, Dtype::kFloat32, Dtype::kComplex64}) {
    items.emplace_back(absl::StrCat("t", items.size()), StateTree{TensorIndex{AddTensor(dtype, {3}, saved)}});
  }
  saved.tree = Dict(items);
  const absl::StatusOr<SafetensorsLayout> layout = LayOutSafetensors(saved.tree, saved.shapes, {});
  ASSERT_EQ(layout.status(), absl::OkStatus());
  EXPECT_EQ(layout->header.size() % 64, 0);
  EXPECT_THAT(layout->order, ElementsAre(2, 4, 3, 1, 0));
  EXPECT_EQ(Write(saved).status(), absl::OkStatus());
}

TEST(SafetensorsLayoutTest, RandomStatesReadBackBitForBit) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  constexpr Dtype kDtypes[] = {Dtype::kBool,    Dtype::kInt16,     Dtype::kBFloat16,     Dtype::kFloat32,
                               Dtype::kFloat64, Dtype::kComplex64, Dtype::kFloat8E8M0FNU};
  for (int i = 0; i < 300; ++i) {
    RandomState state = MakeRandomState(random);
    Saved saved{std::move(state.tree), {}, {}, {}};
    for (size_t tensor = 0; tensor < state.num_tensors; ++tensor) {
      std::vector<int64_t> sizes(random() % 4);
      for (int64_t& size : sizes) size = random() % 4;
      AddTensor(kDtypes[random() % 7], sizes, saved);
    }
    if (random() % 2 == 0) saved.metadata = {{"b", "\"\n"}, {"", "é"}};
    const absl::StatusOr<std::string> file = Write(saved);
    ASSERT_EQ(file.status(), absl::OkStatus());
    const absl::StatusOr<Saved> loaded = Load(*file);
    ASSERT_EQ(loaded.status(), absl::OkStatus());
    ASSERT_TRUE(Same(*loaded, Renumbered(saved))) << *file;
  }
}

TEST(SafetensorsLayoutTest, AnyFlippedBitIsAnErrorOrChangesNothing) {
  const Saved saved = Renumbered(SmallState());
  const absl::StatusOr<std::string> file = Write(saved);
  ASSERT_EQ(file.status(), absl::OkStatus());
  int harmless = 0;
  for (size_t byte = 0; byte < file->size(); ++byte) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = *file;
      flipped[byte] = static_cast<char>(flipped[byte] ^ 1 << bit);
      const absl::StatusOr<Saved> loaded = Load(flipped);
      if (!loaded.ok()) continue;
      ++harmless;
      ASSERT_TRUE(Same(*loaded, saved)) << "byte " << byte << ", bit " << bit << ": " << flipped;
    }
  }
  // The test can see a change: without the checksum of the data it would be one.
  std::string flipped = *file;
  flipped.back() ^= 1;
  ASSERT_EQ(ReadSafetensors(*MemoryAsFile(flipped)).status(), absl::OkStatus());
  EXPECT_EQ(harmless, 0);
}

TEST(SafetensorsLayoutTest, EveryCutIsAnError) {
  const absl::StatusOr<std::string> file = Write(SmallState());
  ASSERT_EQ(file.status(), absl::OkStatus());
  for (size_t size = 0; size < file->size(); ++size) {
    EXPECT_FALSE(Load(std::string_view(*file).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(Load(absl::StrCat(*file, "x")).ok());
}

TEST(SafetensorsLayoutTest, MutatedFilesGiveAnErrorOrTheSavedValues) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const Saved saved = Renumbered(SmallState());
  const absl::StatusOr<std::string> file = Write(saved);
  ASSERT_EQ(file.status(), absl::OkStatus());
  for (int i = 0; i < 2000; ++i) {
    std::string mutated = *file;
    const size_t at = random() % mutated.size();
    const size_t length = random() % 8;
    switch (random() % 3) {
      case 0:
        mutated.erase(at, length);
        break;
      case 1:
        mutated.insert(at, mutated.substr(random() % mutated.size(), length));
        break;
      default:
        mutated[at] = static_cast<char>(random());
    }
    const absl::StatusOr<Saved> loaded = Load(mutated);
    if (loaded.ok()) {
      ASSERT_TRUE(Same(*loaded, saved)) << mutated;
    }
  }
}

TEST(SafetensorsLayoutTest, RefusesWhatTheFormatLacks) {
  Saved saved;
  saved.tree = Dict({{"c", {TensorIndex{AddTensor(Dtype::kComplex128, {1}, saved)}}}});
  EXPECT_THAT(Write(saved), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("\"c\": safetensors files have no dtype complex128")));

  const auto metadata = [](SafetensorsMetadata fields) {
    return Write({Dict({}), {}, {}, std::move(fields)}).status();
  };
  EXPECT_EQ(metadata({{"cohort", "x"}}), absl::OkStatus());
  EXPECT_THAT(metadata({{"cohort.x", ""}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"cohort.x\" is cohort's own")));
  EXPECT_THAT(metadata({{"a", ""}, {"a", ""}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(metadata({{"\xff", ""}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  EXPECT_THAT(metadata({{"a", "\xff"}}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

TEST(SafetensorsLayoutTest, RefusesWhatCouldNotBeReadAgain) {
  StateList numbers;
  numbers.items.resize(1'200'000, {int64_t{1}});
  EXPECT_THAT(Write({Dict({{"data", {std::move(numbers)}}}), {}, {}, {}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("could not be read")));
  EXPECT_THAT(Write({Dict({}), {}, {}, {{"a", std::string(100'000'000, 'x')}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("100000000")));
}

// As one of an optimizer is: two thirds of the tensors in a dict by number.
Saved StateOf(int num_tensors) {
  Saved saved;
  StateDict model;
  StateDict optimizer;
  for (int i = 0; i < num_tensors / 3; ++i) {
    const auto tensor = [&] { return StateTree{TensorIndex{AddTensor(Dtype::kFloat32, {1}, saved)}}; };
    model.items.emplace_back(absl::StrCat("layers.", i, ".attention.weight"), tensor());
    optimizer.items.emplace_back(int64_t{i}, Dict({{"exp_avg", tensor()}, {"exp_avg_sq", tensor()}}));
  }
  saved.tree = Dict({{"model", {std::move(model)}}, {"optimizer", Dict({{"state", {std::move(optimizer)}}})}});
  return saved;
}

TEST(SafetensorsLayoutTest, AHundredThousandTensorsTakeLinearTime) {
  const auto seconds = [](int num_tensors) {
    const Saved saved = StateOf(num_tensors);
    const auto begin = std::chrono::steady_clock::now();
    const absl::StatusOr<std::string> file = Write(saved);
    EXPECT_EQ(file.status(), absl::OkStatus());
    EXPECT_EQ(Load(*file).status(), absl::OkStatus());
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    ::testing::Test::RecordProperty(absl::StrCat("seconds_", num_tensors), absl::StrCat(taken));
    return taken;
  };
  // Quadratic time would be 100 times as much.
  EXPECT_LT(seconds(100'000), 50 * seconds(10'000));
}

TEST(SafetensorsLayoutTest, PythonsJsonAndCrcAgree) {
  const absl::StatusOr<std::string> file = Write(SmallState());
  ASSERT_EQ(file.status(), absl::OkStatus());
  const std::string path = FreshDirectory() + "/file.safetensors";
  WriteFile(path, *file);
  EXPECT_EQ(RunPython(R"(
import json, struct, sys, zlib
data = open(sys.argv[1], "rb").read()
length = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + length])
metadata = header.pop("__metadata__")
def number(n): return struct.pack("<q", n)
def text(t): return number(len(t.encode())) + t.encode()
covered, crcs = b"", ""
for key, value in metadata.items():
    if key not in ("cohort.checksums", "cohort.header_checksum"):
        covered += text(key) + text(value)
covered += text("")
for name, t in header.items():
    begin, end = t["data_offsets"]
    covered += text(name) + text(t["dtype"]) + number(len(t["shape"]))
    covered += b"".join(map(number, t["shape"])) + number(begin) + number(end)
    crcs += "%08x" % zlib.crc32(data[8 + length + begin:8 + length + end])
covered += text(crcs)
assert metadata["cohort.checksums"] == crcs
assert metadata["cohort.header_checksum"] == "%08x" % zlib.crc32(covered)
print(list(header), metadata["format"], metadata["cohort.state"])
)",
                      {path}),
            "['m.flags', 'm.w'] pt {\"m\":{\"flags\":{\"$tensor\":\"m.flags\"},\"w\":{\"$tensor\":\"m.w\"},"
            "\"tied\":{\"$tensor\":\"m.w\"}},\"lr\":0.1,\"epoch\":3}\n");
}

}  // namespace
}  // namespace cohort::internal
