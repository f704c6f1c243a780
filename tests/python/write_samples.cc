// Writes sample .pt files with WriteTorchFile, and beside each what Python must find in it.
//
// usage: write_samples FOLDER
//
// NAME.pt comes with NAME.expected, one line a tensor: name (hexadecimal UTF-8), dtype, shape, strides ("*": not
// promised), the line of the first tensor that it shares memory with (or its own), and its values in row-major order
// (hexadecimal bytes).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/empty.h"
#include "absl/algorithm/container.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"

namespace {

using ::cohort::NamedTensors;

class StreamFile : public cohort::WritableFile {
 public:
  explicit StreamFile(const std::string& path) : stream_(path, std::ios::binary | std::ios::trunc) {}

  absl::Status Append(std::string_view bytes) override {
    stream_.write(bytes.data(), bytes.size());
    num_bytes_ += bytes.size();
    return stream_ ? absl::OkStatus() : absl::UnavailableError("write failed");
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    stream_.seekp(offset).write(bytes.data(), bytes.size()).seekp(0, std::ios::end);
    return stream_ ? absl::OkStatus() : absl::UnavailableError("write failed");
  }
  int64_t num_bytes() const override { return num_bytes_; }

 private:
  std::ofstream stream_;
  int64_t num_bytes_ = 0;
};

// Each of Python's names of a dtype, with C++'s. What it lists must be written; what the writer refuses is not here.
const std::map<std::string, c10::ScalarType>& Dtypes() {
  static const auto* dtypes = new std::map<std::string, c10::ScalarType>{
      {"bfloat16", c10::kBFloat16},
      {"bool", c10::kBool},
      {"complex128", c10::kComplexDouble},
      {"complex32", c10::kComplexHalf},
      {"complex64", c10::kComplexFloat},
      {"float16", c10::kHalf},
      {"float32", c10::kFloat},
      {"float64", c10::kDouble},
      {"float8_e4m3fn", c10::kFloat8_e4m3fn},
      {"float8_e4m3fnuz", c10::kFloat8_e4m3fnuz},
      {"float8_e5m2", c10::kFloat8_e5m2},
      {"float8_e5m2fnuz", c10::kFloat8_e5m2fnuz},
      {"float8_e8m0fnu", c10::kFloat8_e8m0fnu},
      {"int16", c10::kShort},
      {"int32", c10::kInt},
      {"int64", c10::kLong},
      {"int8", c10::kChar},
      {"uint16", c10::kUInt16},
      {"uint32", c10::kUInt32},
      {"uint64", c10::kUInt64},
      {"uint8", c10::kByte},
  };
  return *dtypes;
}

std::string PythonName(c10::ScalarType type) {
  const auto found = absl::c_find_if(Dtypes(), [type](const auto& entry) { return entry.second == type; });
  ABSL_CHECK(found != Dtypes().end()) << "no name for " << c10::toString(type);
  return found->first;
}

// A tensor of bytes that differ from each other and from tensor to tensor; among them NaNs with a payload, infinities
// and negative zeros come up, since every pattern of bits is some value.
at::Tensor Patterned(at::IntArrayRef shape, c10::ScalarType type) {
  static uint32_t state = 1;
  at::Tensor tensor = at::empty(shape, type);
  auto* bytes = static_cast<uint8_t*>(tensor.data_ptr());
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    state = state * 1664525 + 1013904223;
    bytes[i] = type == c10::kBool ? state >> 31 : state >> 24;
  }
  return tensor;
}

NamedTensors EveryDtype() {
  NamedTensors tensors;
  for (const auto& [name, type] : Dtypes()) tensors.emplace_back(name, Patterned({3, 5}, type));
  return tensors;
}

NamedTensors EveryLayout() {
  const at::Tensor base = Patterned({4, 6, 2}, c10::kFloat);
  const at::Tensor other = Patterned({3, 4}, c10::kLong);
  return {
      {"scalar", Patterned({}, c10::kDouble)},
      {"empty", Patterned({0}, c10::kFloat)},
      {"empty_in_the_middle", Patterned({2, 0, 3}, c10::kHalf)},
      {"one_element", Patterned({1, 1, 1}, c10::kByte)},
      {"transposed", Patterned({3, 7}, c10::kFloat).t()},
      {"permuted", Patterned({2, 3, 4}, c10::kInt).permute({2, 0, 1})},
      {"channels_last", Patterned({2, 3, 4, 5}, c10::kFloat).contiguous(at::MemoryFormat::ChannelsLast)},
      {"every_second", base.slice(1, 0, 6, 2)},
      {"part_of_a_larger_one", other.slice(0, 1, 2)},
      {"expanded", Patterned({1, 3}, c10::kFloat).expand({4, 3})},
      {"conjugated", Patterned({3}, c10::kComplexFloat).conj()},
      {"negated", Patterned({2}, c10::kFloat)._neg_view()},
      {"requires_grad", Patterned({2}, c10::kFloat).set_requires_grad(true)},
      {"many_dimensions", Patterned({1, 2, 1, 2, 1, 2, 1, 2}, c10::kFloat)},
  };
}

NamedTensors TiedWeights() {
  const at::Tensor weight = Patterned({8, 4}, c10::kFloat);
  const at::Tensor storage = Patterned({10}, c10::kFloat);
  return {
      {"encoder.weight", weight},
      {"between", Patterned({2}, c10::kFloat)},
      {"decoder.weight", weight},
      {"decoder.weight_transposed", weight.t()},
      {"overlaps", storage.slice(0, 0, 5)},
      {"overlaps_too", storage.slice(0, 4, 8)},
      {"only_in_the_same_storage", storage.slice(0, 8, 10)},
  };
}

NamedTensors AwkwardNames() {
  NamedTensors tensors;
  for (const std::string name :
       {"module.layer.0.weight", "module.", "", " ", "with space", "a/b\\c", "../../etc/passwd", "quote'\"",
        "tab\tand\nline", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "data.pkl", "data/0", "__class__"}) {
    tensors.emplace_back(name, Patterned({2}, c10::kFloat));
  }
  tensors.emplace_back(std::string("nul\0inside", 10), Patterned({2}, c10::kFloat));
  tensors.emplace_back(std::string(65535, 'n'), Patterned({2}, c10::kFloat));
  return tensors;
}

// Names past 255 and 65535 memo entries, which pickle numbers differently.
NamedTensors ManyTensors() {
  NamedTensors tensors;
  for (int i = 0; i < 20000; ++i) tensors.emplace_back(absl::StrCat("t", i), Patterned({1}, c10::kFloat));
  return tensors;
}

NamedTensors LargeTensor() { return {{"large", Patterned({1 << 20}, c10::kFloat)}}; }

// Shape and strides as "2,3"; "-" stands for none.
std::string Numbers(at::IntArrayRef numbers) {
  return numbers.empty() ? "-" : absl::StrJoin(absl::Span<const int64_t>(numbers.data(), numbers.size()), ",");
}

// True if the two, which have positive strides, use some of the same elements of one storage.
bool Overlap(const at::Tensor& a, const at::Tensor& b) {
  auto end = [](const at::Tensor& tensor) {
    int64_t last = tensor.storage_offset();
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return last + 1;
  };
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.scalar_type() == b.scalar_type() && a.storage_offset() < end(b) && b.storage_offset() < end(a);
}

std::string ExpectedLine(const NamedTensors& tensors, size_t i) {
  const at::Tensor& tensor = tensors[i].second;
  size_t first = i;
  // A look at all would take a second for many tensors; those that share stand close together here.
  for (size_t j = i < 10 ? 0 : i - 10; j < first; ++j) {
    if (Overlap(tensors[j].second, tensor)) first = j;
  }
  const at::Tensor dense = tensor.detach().resolve_conj().resolve_neg().contiguous();
  const std::string_view values(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
  return absl::StrCat(absl::BytesToHexString(tensors[i].first), "\t", PythonName(tensor.scalar_type()), "\t",
                      Numbers(tensor.sizes()), "\t",
                      tensor.is_non_overlapping_and_dense() ? Numbers(tensor.strides()) : "*", "\t", first, "\t",
                      absl::BytesToHexString(values), "\n");
}

void Write(const std::string& path, const NamedTensors& tensors) {
  StreamFile file(path + ".pt");
  ABSL_CHECK_OK(cohort::WriteTorchFile(tensors, file)) << path;
  std::ofstream expected(path + ".expected", std::ios::binary);
  for (size_t i = 0; i < tensors.size(); ++i) expected << ExpectedLine(tensors, i);
  expected.close();
  ABSL_CHECK(expected) << "cannot write " << path << ".expected";
}

}  // namespace

int main(int argc, char** argv) {
  ABSL_CHECK_EQ(argc, 2) << "usage: write_samples FOLDER";
  const std::string folder = argv[1];
  Write(folder + "/dtypes", EveryDtype());
  Write(folder + "/layouts", EveryLayout());
  Write(folder + "/tied", TiedWeights());
  Write(folder + "/names", AwkwardNames());
  Write(folder + "/many", ManyTensors());
  Write(folder + "/large", LargeTensor());
  Write(folder + "/nothing", {});
}
