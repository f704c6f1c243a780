#include "cohort/checkpoint/torch_file.h"

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/complex.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/ones.h"
#include "ATen/ops/quantize_per_tensor.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cohort/checkpoint/internal/string_file.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/python.h"
#include "cohort/checkpoint/writable_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::internal::StringFile;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::RunPython;
using ::cohort::testing::WriteFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Keeps nothing.
class NullFile final : public WritableFile {
 public:
  absl::Status Append(std::string_view bytes) override {
    num_bytes_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t, std::string_view) override { return absl::OkStatus(); }
  int64_t num_bytes() const override { return num_bytes_; }

 private:
  int64_t num_bytes_ = 0;
};

// A reader of its own, in plain Python, that admits what torch.load(weights_only=True) admits. Prints one line a
// tensor: name, dtype, shape, strides, offset, name and bytes of the storage, metadata, elements; then the names in the
// archive.
constexpr char kReader[] = R"(
import collections, itertools, pickle, sys, zipfile
STORAGES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
            "ComplexDoubleStorage": "complex128", "ComplexFloatStorage": "complex64", "LongStorage": "int64",
            "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool"}
SIZES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "complex128": 16, "complex64": 8, "int64": 8, "int32": 4,
         "int16": 2, "int8": 1, "uint8": 1, "bool": 1, "complex32": 4, "uint16": 2, "uint32": 4, "uint64": 8,
         "float8_e5m2": 1, "float8_e5m2fnuz": 1, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e8m0fnu": 1}

def rebuild_v2(storage, offset, size, stride, requires_grad, hooks, metadata=None):
    key, dtype, data = storage
    assert dtype and requires_grad is False and hooks == collections.OrderedDict()
    return key, dtype, data, offset, size, stride, metadata

def rebuild_v3(storage, offset, size, stride, requires_grad, hooks, dtype, metadata=None):
    key, untyped, data = storage
    assert untyped is None and dtype not in STORAGES.values()
    return rebuild_v2((key, dtype, data), offset, size, stride, requires_grad, hooks, metadata)

class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        known = {"torch._utils._rebuild_tensor_v2": rebuild_v2, "torch._utils._rebuild_tensor_v3": rebuild_v3,
                 "collections.OrderedDict": collections.OrderedDict, "torch.storage.UntypedStorage": ("storage", None)}
        known.update({"torch." + n: ("storage", d) for n, d in STORAGES.items()})
        known.update({"torch." + d: d for d in SIZES})
        return known[module + "." + name]
    def persistent_load(self, pid):
        tag, (_, dtype), key, location, count = pid
        assert tag == "storage" and location == "cpu"
        data = archive.read("archive/data/" + key)
        assert len(data) == count * (SIZES[dtype] if dtype else 1), pid
        return key, dtype, data

archive = zipfile.ZipFile(sys.argv[1])
assert archive.testzip() is None
assert archive.read("archive/byteorder") == b"little" and archive.read("archive/version") == b"3\n"
assert archive.read("archive/.format_version") == b"1" and archive.read("archive/.storage_alignment") == b"64"
state = Unpickler(archive.open("archive/data.pkl")).load()
assert type(state) is dict
for name, (key, dtype, data, offset, size, stride, metadata) in state.items():
    n = SIZES[dtype]
    elements = b""
    for index in itertools.product(*map(range, size)):
        at = (offset + sum(i * s for i, s in zip(index, stride))) * n
        assert 0 <= at <= len(data) - n
        elements += data[at:at + n]
    print(name, dtype, list(size), list(stride), offset, key, len(data), metadata, elements.hex())
print(*(i.filename.removeprefix("archive/") for i in archive.infolist()))
)";

std::string Read(const NamedTensors& tensors) {
  StringFile file;
  EXPECT_THAT(WriteTorchFile(tensors, file), IsOk());
  const std::string path = FreshDirectory() + "/m.pt";
  WriteFile(path, file.contents());
  return RunPython(kReader, {path});
}

std::string HexOf(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return absl::BytesToHexString(
      std::string_view(static_cast<const char*>(dense.const_data_ptr()), static_cast<size_t>(dense.nbytes())));
}

std::string ListOf(at::IntArrayRef values) { return absl::StrCat("[", absl::StrJoin(values, ", "), "]"); }

// The line that the reader prints of a tensor that kept its strides and has storage `key` of its own.
std::string Line(std::string_view name, std::string_view dtype, const at::Tensor& tensor, int key) {
  return absl::StrCat(name, " ", dtype, " ", ListOf(tensor.sizes()), " ", ListOf(tensor.strides()), " 0 ", key, " ",
                      tensor.nbytes(), " None ", HexOf(tensor), "\n");
}

std::string Archive(int num_storages) {
  std::string names = "data.pkl .format_version .storage_alignment byteorder ";
  for (int i = 0; i < num_storages; ++i) absl::StrAppend(&names, "data/", i, " ");
  return names + "version\n";
}

at::Tensor Numbers(int64_t n) { return at::arange(n, at::kFloat); }

// ---- What is written ----

TEST(TorchFileTest, WritesAStateDictInOrder) {
  const at::Tensor weight = Numbers(6).view({2, 3});
  const at::Tensor bias = Numbers(2);
  EXPECT_EQ(Read({{"weight", weight}, {"bias", bias}}),
            Line("weight", "float32", weight, 0) + Line("bias", "float32", bias, 1) + Archive(2));
}

TEST(TorchFileTest, WritesNoTensorsAtAll) { EXPECT_EQ(Read({}), Archive(0)); }

TEST(TorchFileTest, KeepsNamesLetterForLetter) {
  const at::Tensor one = Numbers(1);
  for (std::string_view name : {"", "module.fc1.weight", ".", "模型.вес", "a/b", "__class__"}) {
    EXPECT_EQ(Read({{std::string(name), one}}), Line(name, "float32", one, 0) + Archive(1));
  }
}

TEST(TorchFileTest, WritesEveryDtype) {
  const std::vector<std::pair<at::ScalarType, std::string>> dtypes = {
      {at::kDouble, "float64"},
      {at::kFloat, "float32"},
      {at::kHalf, "float16"},
      {at::kBFloat16, "bfloat16"},
      {at::kComplexDouble, "complex128"},
      {at::kComplexFloat, "complex64"},
      {at::kComplexHalf, "complex32"},
      {at::kLong, "int64"},
      {at::kInt, "int32"},
      {at::kShort, "int16"},
      {at::kChar, "int8"},
      {at::kByte, "uint8"},
      {at::kBool, "bool"},
      {at::kUInt16, "uint16"},
      {at::kUInt32, "uint32"},
      {at::kUInt64, "uint64"},
      {at::kFloat8_e5m2, "float8_e5m2"},
      {at::kFloat8_e5m2fnuz, "float8_e5m2fnuz"},
      {at::kFloat8_e4m3fn, "float8_e4m3fn"},
      {at::kFloat8_e4m3fnuz, "float8_e4m3fnuz"},
      {at::kFloat8_e8m0fnu, "float8_e8m0fnu"},
  };
  NamedTensors tensors;
  std::string expected;
  for (const auto& [type, name] : dtypes) {
    tensors.emplace_back(name, Numbers(6).to(type).view({2, 3}));
    expected += Line(name, name, tensors.back().second, static_cast<int>(tensors.size()) - 1);
  }
  EXPECT_EQ(Read(tensors), expected + Archive(static_cast<int>(dtypes.size())));
}

TEST(TorchFileTest, KeepsBitsThatAreNoNumbers) {
  at::Tensor bits = at::arange(3, at::kInt);
  int32_t* const data = bits.mutable_data_ptr<int32_t>();
  data[0] = 0x7fc00001;           // a NaN with a payload
  data[1] = int32_t(0xffa00002);  // a signalling one
  data[2] = int32_t(0x80000000);  // -0.0
  const at::Tensor floats = bits.view(at::kFloat);
  EXPECT_EQ(Read({{"f", floats}}), Line("f", "float32", floats, 0) + Archive(1));
}

TEST(TorchFileTest, WritesScalarsAndEmptyTensors) {
  const at::Tensor scalar = Numbers(8).select(0, 7).clone();
  const at::Tensor empty = at::empty({0}, at::kFloat);
  const at::Tensor flat = at::empty({3, 0, 2}, at::kFloat);
  EXPECT_EQ(Read({{"scalar", scalar}, {"empty", empty}, {"flat", flat}}),
            Line("scalar", "float32", scalar, 0) + Line("empty", "float32", empty, 1) +
                Line("flat", "float32", flat, 2) + Archive(3));
}

TEST(TorchFileTest, WritesATensorThatNeedsItsGradient) {
  at::Tensor weight = Numbers(3).requires_grad_(true);
  EXPECT_EQ(Read({{"w", weight}, {"twice", weight.mul(2)}}),
            Line("w", "float32", weight, 0) + Line("twice", "float32", Numbers(3).mul(2), 1) + Archive(2));
}

// ---- Shared and strided memory ----

TEST(TorchFileTest, WritesTiedTensorsOnce) {
  const at::Tensor tied = Numbers(4);
  EXPECT_EQ(Read({{"in", tied}, {"other", Numbers(1)}, {"out", tied}}),
            Line("in", "float32", tied, 0) + Line("other", "float32", Numbers(1), 1) + Line("out", "float32", tied, 0) +
                Archive(2));
}

TEST(TorchFileTest, KeepsOverlapsOfViews) {
  const at::Tensor base = Numbers(10);
  EXPECT_EQ(Read({{"tail", base.narrow(0, 4, 4)}, {"head", base.narrow(0, 2, 4)}}),
            absl::StrCat("tail float32 [4] [1] 2 0 24 None ", HexOf(base.narrow(0, 4, 4)), "\n",
                         "head float32 [4] [1] 0 0 24 None ", HexOf(base.narrow(0, 2, 4)), "\n", Archive(1)));
}

TEST(TorchFileTest, WritesOnlyThePartOfAStorageThatIsUsed) {
  const at::Tensor table = Numbers(1000).view({100, 10});
  const at::Tensor first = table.select(0, 3), second = table.select(0, 90);
  EXPECT_EQ(Read({{"first", first}, {"second", second}}),
            Line("first", "float32", first, 0) + Line("second", "float32", second, 1) + Archive(2));
}

TEST(TorchFileTest, KeepsTheStridesOfADenseTensor) {
  const at::Tensor transposed = Numbers(6).view({2, 3}).t();
  EXPECT_EQ(Read({{"t", transposed}}), Line("t", "float32", transposed, 0) + Archive(1));
}

TEST(TorchFileTest, ClosesTheHolesOfAView) {
  const at::Tensor column = Numbers(1000).view({100, 10}).select(1, 7);
  const at::Tensor block = Numbers(1000).view({10, 10, 10}).narrow(1, 2, 3).narrow(2, 4, 5);
  EXPECT_EQ(
      Read({{"column", column}, {"block", block}}),
      Line("column", "float32", column.contiguous(), 0) + Line("block", "float32", block.contiguous(), 1) + Archive(2));
}

TEST(TorchFileTest, WritesARepeatedElementOnce) {
  const at::Tensor expanded = Numbers(2).unsqueeze(1).expand({2, 1000});
  EXPECT_EQ(Read({{"e", expanded}}),
            absl::StrCat("e float32 [2, 1000] [1, 0] 0 0 8 None ", HexOf(expanded), "\n", Archive(1)));
}

TEST(TorchFileTest, WritesConjugatesAndNegativesAsMarks) {
  const at::Tensor complex = at::complex(Numbers(3), Numbers(3));
  const at::Tensor conjugate = complex.conj();
  EXPECT_EQ(Read({{"c", conjugate}, {"plain", complex}}),
            absl::StrCat("c complex64 [3] [1] 0 0 24 {'conj': True} ", HexOf(complex), "\n",
                         "plain complex64 [3] [1] 0 0 24 None ", HexOf(complex), "\n", Archive(1)));
}

TEST(TorchFileTest, SharedMemoryOfTwoDtypesIsWrittenForEach) {
  const at::Tensor floats = Numbers(2);
  const at::Tensor ints = floats.view(at::kInt);
  EXPECT_EQ(Read({{"f", floats}, {"i", ints}}),
            Line("f", "float32", floats, 0) + Line("i", "int32", ints, 1) + Archive(2));
}

TEST(TorchFileTest, CopiesALargeStridedTensorInPieces) {
  const at::Tensor large =
      at::arange(int64_t{3} << 21, at::kLong).view({3, 1 << 10, 1 << 11}).transpose(0, 2).narrow(0, 1, 2000);
  ASSERT_GT(large.nbytes(), int64_t{40} << 20);
  StringFile file;
  ASSERT_THAT(WriteTorchFile(NamedTensors{{"large", large}}, file), IsOk());
  const std::string dir = FreshDirectory();
  WriteFile(dir + "/m.pt", file.contents());
  const at::Tensor dense = large.contiguous();
  WriteFile(dir + "/expected", std::string_view(static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()));
  RunPython(R"(
import sys, zipfile
assert zipfile.ZipFile(sys.argv[1] + "/m.pt").read("archive/data/0") == open(sys.argv[1] + "/expected", "rb").read()
)",
            {dir});
}

// ---- What is refused ----

absl::Status Refused(const NamedTensors& tensors) {
  NullFile file;
  const absl::Status status = WriteTorchFile(tensors, file);
  EXPECT_EQ(file.num_bytes(), 0);
  return status;
}

TEST(TorchFileTest, RefusesBadNamesBeforeAnythingIsWritten) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Refused({{"w", Numbers(1)}, {"w", Numbers(1)}}), StatusIs(invalid, "two tensors are named \"w\""));
  EXPECT_THAT(Refused({{"ok", Numbers(1)}, {"\xff", Numbers(1)}}), StatusIs(invalid, HasSubstr("not UTF-8")));
}

TEST(TorchFileTest, RefusesWhatHasNoData) {
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(Refused({{"ok", Numbers(1)}, {"u", at::Tensor()}}), StatusIs(invalid, "tensor \"u\" is undefined"));
  EXPECT_THAT(Refused({{"m", at::empty({2}, at::device(at::kMeta))}}),
              StatusIs(invalid, "tensor \"m\" has no data (device meta)"));
  const at::Tensor freed = Numbers(100);
  freed.storage().unsafeGetStorageImpl()->set_nbytes(0);
  EXPECT_THAT(Refused({{"f", freed}}),
              StatusIs(invalid, AllOf(HasSubstr("\"f\" needs 100 elements"), HasSubstr("has 0"))));
}

TEST(TorchFileTest, RefusesWhatItCannotHoldExactly) {
  const auto unimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_THAT(Refused({{"s", at::ones({2, 2}).to_sparse()}}),
              StatusIs(unimplemented, "tensor \"s\" has layout Sparse; only dense tensors can be saved"));
  EXPECT_THAT(Refused({{"q", at::quantize_per_tensor(Numbers(2), 1.0, 0, at::kQInt8)}}),
              StatusIs(unimplemented, HasSubstr("tensor \"q\" has dtype QInt8")));
}

TEST(TorchFileTest, ReturnsTheFilesError) {
  class FullFile final : public WritableFile {
   public:
    absl::Status Append(std::string_view) override { return absl::ResourceExhaustedError("disk full"); }
    absl::Status Overwrite(int64_t, std::string_view) override { return absl::ResourceExhaustedError("disk full"); }
    int64_t num_bytes() const override { return 0; }
  };
  FullFile file;
  EXPECT_THAT(WriteTorchFile(NamedTensors{{"w", Numbers(1)}}, file),
              StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
}

// ---- Memory ----

// By how much this process's memory grew, at its peak, while `work` ran.
template <typename Work>
int64_t PeakGrowth(Work work) {
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;  // the peak begins anew
  const auto read = [](std::string_view field) -> int64_t {
    std::ifstream status("/proc/self/status");
    for (std::string name; status >> name;) {
      int64_t kib;
      if (name == field && status >> kib) return kib << 10;
    }
    ABSL_CHECK(false) << field;
    return 0;
  };
  const int64_t before = read("VmRSS:");
  EXPECT_LT(read("VmHWM:") - before, int64_t{4} << 20) << "the peak was not reset";
  work();
  return read("VmHWM:") - before;
}

TEST(TorchFileTest, UsesAtMost64MiBBeyondTheState) {
  const at::Tensor base = at::ones({1 << 13, 1 << 13}, at::kFloat);  // 256 MiB
  const NamedTensors state = {{"dense", base}, {"holes", at::ones({1 << 12, 1 << 14}).narrow(1, 0, 1 << 13)}};
  const int64_t growth = PeakGrowth([&] {
    NullFile file;
    ASSERT_THAT(WriteTorchFile(state, file), IsOk());
    EXPECT_GT(file.num_bytes(), int64_t{384} << 20);
  });
  EXPECT_LT(growth, int64_t{64} << 20);
}

TEST(TorchFileTest, TheDetectorFindsACopyOfTheState) {
  const at::Tensor base = at::ones({1 << 12, 1 << 13}, at::kFloat);  // 128 MiB
  EXPECT_GT(PeakGrowth([&] { EXPECT_EQ(base.clone().numel(), base.numel()); }), int64_t{64} << 20);
}

}  // namespace
}  // namespace cohort
