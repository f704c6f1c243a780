// The C++ side of formats_test.py: writes states and says what is in them, and says what it finds in files.
//
// usage: formats_twin write SEED COUNT FOLDER     COUNT random states and some particular ones, in both formats
//        formats_twin dtypes FOLDER               a tensor of each dtype, in both formats
//        formats_twin read LIST                   LIST: a file that names files, a line each
//
// Everything is said on stdout, one JSON object a line. A value is
//
//   null, true, false, {"int": "1"}, {"float": BITS}, {"complex": [BITS, BITS]}, {"str": HEX}, {"list": [...]},
//   {"tuple": [...]}, {"dict": [[KEY, VALUE], ...]}, {"tensor": PLACE}
//
// and a description {"value": VALUE, "tensors": [...]} has each tensor at its place: dtype, shape, strides, the marks
// "conj" and "neg", "values" (the bytes in memory, row-major, HEX), and "first" and "distance": the first tensor of the
// same dtype that uses some of the same memory, and how many bytes there are between the beginnings of the two.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/Functions.h"
#include "ATen/core/Dict.h"
#include "ATen/core/List.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/core/jit_type.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/safetensors_file.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort {
namespace {

using ::c10::IValue;
using ::c10::ScalarType;

// ---- JSON ----

std::string Hex(std::string_view bytes) { return absl::StrCat("\"", absl::BytesToHexString(bytes), "\""); }
std::string Bits(double value) { return absl::StrFormat("\"%016x\"", std::bit_cast<uint64_t>(value)); }
std::string Numbers(at::IntArrayRef numbers) {
  return absl::StrCat("[", absl::StrJoin(absl::Span<const int64_t>(numbers.data(), numbers.size()), ","), "]");
}
std::string List(const std::vector<std::string>& items) { return absl::StrCat("[", absl::StrJoin(items, ","), "]"); }
std::string Object(const std::string& name, const std::string& value) {
  return absl::StrCat("{\"", name, "\":", value, "}");
}

// ---- Descriptions ----

std::string NameOf(ScalarType type) {
  const std::string_view name = c10::getDtypeNames(type).first;
  return name.empty() ? absl::AsciiStrToLower(c10::toString(type)) : std::string(name);
}

// The tensor without marks, so that its memory is its value.
at::Tensor Unmarked(at::Tensor tensor) {
  tensor = tensor.detach();
  if (tensor.is_conj()) tensor = tensor._conj();
  if (tensor.is_neg()) tensor = tensor._neg_view();
  return tensor;
}

std::string Values(const at::Tensor& tensor) {
  const at::Tensor dense = Unmarked(tensor).contiguous();
  return std::string(static_cast<const char*>(dense.data_ptr()), dense.nbytes());
}

// What a tensor uses of the memory.
std::pair<const char*, const char*> Extent(const at::Tensor& tensor) {
  const auto* begin = static_cast<const char*>(Unmarked(tensor).data_ptr());
  if (tensor.numel() == 0) return {begin, begin};
  int64_t last = 0;
  for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size())};
}

class Describer {
 public:
  std::string Describe(const IValue& state) {
    const std::string value = Value(state);
    std::vector<std::string> tensors;
    for (size_t i = 0; i < tensors_.size(); ++i) tensors.push_back(Tensor(i));
    return absl::StrCat("{\"value\":", value, ",\"tensors\":", List(tensors), "}");
  }

 private:
  std::string Value(const IValue& value) {
    if (value.isNone()) return "null";
    if (value.isBool()) return value.toBool() ? "true" : "false";
    if (value.isInt()) return Object("int", absl::StrCat("\"", value.toInt(), "\""));
    if (value.isDouble()) return Object("float", Bits(value.toDouble()));
    if (value.isComplexDouble()) {
      const auto number = value.toComplexDouble();
      return Object("complex", List({Bits(number.real()), Bits(number.imag())}));
    }
    if (value.isString()) return Object("str", Hex(value.toStringRef()));
    if (value.isTensor()) {
      tensors_.push_back(value.toTensor());
      return Object("tensor", absl::StrCat(tensors_.size() - 1));
    }
    std::vector<std::string> items;
    if (value.isTuple()) {
      for (const IValue& item : value.toTupleRef().elements()) items.push_back(Value(item));
      return Object("tuple", List(items));
    }
    if (value.isList()) {
      for (const IValue& item : value.toListRef()) items.push_back(Value(item));
      return Object("list", List(items));
    }
    ABSL_CHECK(value.isGenericDict()) << value.tagKind();
    for (const auto& item : value.toGenericDict()) {
      const std::string key = Value(item.key());
      items.push_back(List({key, Value(item.value())}));
    }
    return Object("dict", List(items));
  }

  std::string Tensor(size_t i) const {
    const at::Tensor& tensor = tensors_[i];
    const auto [begin, end] = Extent(tensor);
    size_t first = i;
    for (size_t j = i; j-- > 0;) {
      const auto [other_begin, other_end] = Extent(tensors_[j]);
      if (tensors_[j].scalar_type() == tensor.scalar_type() && begin < other_end && other_begin < end) first = j;
    }
    return absl::StrCat("{\"dtype\":\"", NameOf(tensor.scalar_type()), "\",\"shape\":", Numbers(tensor.sizes()),
                        ",\"strides\":", Numbers(tensor.strides()), ",\"conj\":", tensor.is_conj(),
                        ",\"neg\":", tensor.is_neg(), ",\"first\":", first,
                        ",\"distance\":", begin - Extent(tensors_[first]).first, ",\"values\":", Hex(Values(tensor)),
                        "}");
  }

  std::vector<at::Tensor> tensors_;
};

std::string Describe(const IValue& state) { return Describer().Describe(state); }

// ---- Writing ----

class StringFile : public WritableFile {
 public:
  absl::Status Append(std::string_view bytes) override {
    bytes_.append(bytes);
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    bytes_.replace(offset, bytes.size(), bytes);
    return absl::OkStatus();
  }
  int64_t num_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

using Writer = std::function<absl::Status(const IValue&, WritableFile&)>;

// Writes a file, and returns "" or the error. Before an error nothing may be written.
std::string Write(const Writer& write, const IValue& state, const std::string& path) {
  StringFile file;
  const absl::Status status = write(state, file);
  if (!status.ok()) {
    ABSL_CHECK_EQ(file.num_bytes(), 0) << path << ": " << status;
    return status.ToString();
  }
  std::ofstream stream(path, std::ios::binary | std::ios::trunc);
  stream << file.bytes();
  stream.close();
  ABSL_CHECK(stream) << "cannot write " << path;
  return "";
}

absl::Status WriteSafetensors(const IValue& state, WritableFile& file) {
  return WriteSafetensorsFile(state, {{"made by", "C++"}, {"\xC3\xA4", "\n\""}}, file);
}

// Writes `state` as PATH.pt and PATH.safetensors, and says so.
void WriteBoth(const std::string& path, const IValue& state, bool describe = true) {
  const std::string torch = Write([](const auto& s, auto& f) { return WriteTorchFile(s, f); }, state, path + ".pt");
  const std::string safetensors = Write(WriteSafetensors, state, path + ".safetensors");
  std::cout << "{\"name\":" << Hex(path.substr(path.rfind('/') + 1)) << ",\"pt\":" << Hex(torch)
            << ",\"safetensors\":" << Hex(safetensors) << ",\"state\":" << (describe ? Describe(state) : "null")
            << "}\n";
}

// ---- Random states ----

const std::vector<std::string>& AwkwardNames() {
  static const auto* names = new std::vector<std::string>{"",
                                                          "weight",
                                                          "layer.0.weight",
                                                          "module.",
                                                          ".",
                                                          "..",
                                                          "../../etc/passwd",
                                                          " ",
                                                          "a b",
                                                          "a/b",
                                                          "\"quote'",
                                                          "a:b",
                                                          "new\nline",
                                                          "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80",
                                                          "metrics",
                                                          "$float",
                                                          "$tensor",
                                                          "{}",
                                                          "dtype",
                                                          "data.pkl",
                                                          "__class__",
                                                          "0",
                                                          "back\\lash",
                                                          "\x7F\x01 control",
                                                          "__metadata",
                                                          std::string("nul\0inside", 10),
                                                          std::string(10000, 'n')};
  return *names;
}

const std::vector<ScalarType>& Dtypes() {
  static const auto* dtypes = new std::vector<ScalarType>{c10::kBool,          c10::kByte,
                                                          c10::kUInt16,        c10::kUInt32,
                                                          c10::kUInt64,        c10::kChar,
                                                          c10::kShort,         c10::kInt,
                                                          c10::kLong,          c10::kHalf,
                                                          c10::kBFloat16,      c10::kFloat,
                                                          c10::kDouble,        c10::kComplexHalf,
                                                          c10::kComplexFloat,  c10::kComplexDouble,
                                                          c10::kFloat8_e5m2,   c10::kFloat8_e5m2fnuz,
                                                          c10::kFloat8_e4m3fn, c10::kFloat8_e4m3fnuz,
                                                          c10::kFloat8_e8m0fnu};
  return *dtypes;
}

// Zero, one, infinities, NaNs with payloads and subnormal numbers, positive and negative.
std::vector<uint64_t> SpecialBits(ScalarType type) {
  uint64_t infinity = 0;
  int bits = 0;
  switch (c10::toRealValueType(type)) {
    case c10::kHalf:
      infinity = 0x7c00, bits = 16;
      break;
    case c10::kBFloat16:
      infinity = 0x7f80, bits = 16;
      break;
    case c10::kFloat:
      infinity = 0x7f800000, bits = 32;
      break;
    case c10::kDouble:
      infinity = 0x7ff0000000000000, bits = 64;
      break;
    default:
      return {};
  }
  std::vector<uint64_t> special;
  for (const uint64_t positive :
       {uint64_t{0}, uint64_t{1}, infinity, infinity + 1, infinity + (infinity >> 1 & ~infinity) + 5}) {
    special.push_back(positive);
    special.push_back(positive | uint64_t{1} << (bits - 1));
  }
  return special;
}

class RandomStates {
 public:
  explicit RandomStates(uint64_t seed) : random_(seed) {}

  IValue Next() {
    tensors_.clear();
    return Value(0);
  }

  // Every pattern of bits is some value, but for bool.
  at::Tensor Filled(at::IntArrayRef shape, ScalarType type) {
    at::Tensor tensor = at::empty(shape, type);
    auto* bytes = static_cast<uint8_t*>(tensor.data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) bytes[i] = static_cast<uint8_t>(type == c10::kBool ? Up(2) : Up(256));
    const std::vector<uint64_t> special = SpecialBits(type);
    if (special.empty()) return tensor;
    const size_t size = c10::elementSize(c10::toRealValueType(type));
    for (size_t i = 0; i < tensor.nbytes(); i += size) {
      if (Up(2) == 0) std::memcpy(bytes + i, &special[Up(special.size())], size);  // little-endian
    }
    return tensor;
  }

 private:
  // From 0 to n - 1.
  size_t Up(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  template <typename T>
  const T& OneOf(const std::vector<T>& items) {
    return items[Up(items.size())];
  }

  at::Tensor FreshTensor() {
    static const auto* shapes = new std::vector<std::vector<int64_t>>{
        {}, {0}, {3, 0, 2}, std::vector<int64_t>(10, 1), {1}, {5}, {3, 4}, {2, 3, 4}, {1, 7}, {2, 1, 2, 2}, {300}};
    const at::Tensor tensor = Filled(OneOf(*shapes), OneOf(Dtypes()));
    const int64_t dim = tensor.dim();
    switch (Up(7)) {
      case 0:
        return dim > 1 ? tensor.transpose(0, dim - 1) : tensor;
      case 1:
        return dim > 0 && tensor.size(-1) > 2 ? tensor.slice(-1, 0, tensor.size(-1), 2) : tensor;
      case 2:
        return dim > 0 && tensor.size(-1) > 2 ? tensor.slice(-1, 1, 3) : tensor;
      case 3:
        return tensor.unsqueeze(0).expand([&] {
          std::vector<int64_t> sizes = tensor.sizes().vec();
          sizes.insert(sizes.begin(), 3);
          return sizes;
        }());
      case 4:
        return tensor.is_complex() ? tensor.conj() : tensor;
      case 5:
        // Of float8, LibTorch does not know the negative.
        return (tensor.is_floating_point() && tensor.element_size() > 1) || tensor.is_complex() ? tensor._neg_view()
                                                                                                : tensor;
      default:
        return tensor;
    }
  }

  at::Tensor Tensor() {
    at::Tensor tensor;
    if (tensors_.empty() || Up(3) > 0) {
      tensor = FreshTensor();
    } else {  // tied to another one, in whole or in part
      tensor = OneOf(tensors_);
      switch (Up(4)) {
        case 0:
          if (tensor.dim() > 1) tensor = tensor.transpose(0, 1);
          break;
        case 1:
          if (tensor.dim() > 0 && tensor.size(0) > 1) tensor = tensor.slice(0, 1);
          break;
        case 2:
          tensor = tensor.unsqueeze(-1);
          break;
        default:
          break;
      }
    }
    tensors_.push_back(tensor);
    return tensor;
  }

  double Double() {
    static const auto* bits = new std::vector<uint64_t>(SpecialBits(c10::kDouble));
    if (Up(2) == 0) return std::bit_cast<double>(OneOf(*bits));
    if (Up(2) == 0) return std::bit_cast<double>(random_());
    return static_cast<double>(Up(1000)) / 10;
  }

  int64_t Int() {
    static const auto* ints = new std::vector<int64_t>{0,
                                                       1,
                                                       -1,
                                                       127,
                                                       128,
                                                       255,
                                                       256,
                                                       65535,
                                                       65536,
                                                       -128,
                                                       -129,
                                                       -32769,
                                                       INT32_MAX,
                                                       INT32_MIN,
                                                       INT64_MAX,
                                                       INT64_MIN,
                                                       1LL << 31,
                                                       -(1LL << 31) - 1,
                                                       1LL << 53,
                                                       1LL << 32,
                                                       -(1LL << 39),
                                                       (1LL << 53) + 1};
    return Up(2) == 0 ? OneOf(*ints) : static_cast<int64_t>(random_()) >> Up(64);
  }

  IValue Key() { return Up(4) == 0 ? IValue(Int()) : IValue(OneOf(AwkwardNames())); }

  IValue Dict(int depth) {
    c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
    const size_t size = Up(6);
    for (size_t i = 0; i < size; ++i) dict.insert(Key(), Value(depth + 1));
    return dict;
  }

  IValue List(int depth) {
    c10::impl::GenericList list(c10::AnyType::get());
    const size_t size = Up(5);
    for (size_t i = 0; i < size; ++i) list.push_back(Value(depth + 1));
    return list;
  }

  IValue Tuple(int depth) {
    std::vector<IValue> items(Up(5));
    for (IValue& item : items) item = Value(depth + 1);
    return c10::ivalue::Tuple::create(std::move(items));
  }

  IValue Value(int depth) {
    const size_t container = depth == 0 ? Up(12) : depth > 4 ? 12 : Up(24);
    if (container < 8) return container < (depth == 0 ? 8 : 4) ? Dict(depth) : List(depth);
    if (container < 10) return List(depth);
    if (container < 12) return Tuple(depth);
    switch (Up(11)) {
      case 0:
        return IValue();
      case 1:
        return IValue(Up(2) == 0);
      case 2:
        return IValue(Int());
      case 3:
        return IValue(Double());
      case 4: {
        const double real = Double();
        return IValue(c10::complex<double>(real, Double()));
      }
      case 5:
        return IValue(OneOf(AwkwardNames()));
      default:
        return IValue(Tensor());
    }
  }

  std::mt19937_64 random_;
  std::vector<at::Tensor> tensors_;  // of this state
};

IValue DictOf(const std::vector<std::pair<std::string, IValue>>& items) {
  c10::impl::GenericDict dict(c10::AnyType::get(), c10::AnyType::get());
  for (const auto& [key, value] : items) dict.insert(key, value);
  return dict;
}

void WriteStates(uint64_t seed, int count, const std::string& folder) {
  RandomStates random(seed);
  for (int i = 0; i < count; ++i) WriteBoth(absl::StrCat(folder, "/random", i), random.Next());

  std::vector<std::pair<std::string, IValue>> names;
  for (const std::string& name : AwkwardNames()) names.emplace_back(name, random.Filled({2}, c10::kFloat));
  WriteBoth(folder + "/names", DictOf(names));
  const IValue one(random.Filled({2}, c10::kFloat));
  const IValue other(random.Filled({2}, c10::kFloat));
  WriteBoth(folder + "/metadata", DictOf({{"__metadata__", one}}));
  WriteBoth(folder + "/collision", DictOf({{"a.b", DictOf({{"c", one}})}, {"a", DictOf({{"b.c", other}})}}));

  // 10 rows of a table of 100 MB, of which no more memory is taken.
  const at::Tensor table = at::empty({100'000, 250}, c10::kFloat);
  at::Tensor rows = table.slice(0, 500, 510);
  rows.copy_(random.Filled(rows.sizes(), c10::kFloat));
  WriteBoth(folder + "/slice", DictOf({{"rows", rows}}));

  WriteBoth(folder + "/negative8", DictOf({{"x", random.Filled({3}, c10::kFloat8_e5m2)._neg_view()}}));

  const at::Tensor matrix = at::ones({2, 2});
  for (const auto& [name, tensor] : std::initializer_list<std::pair<std::string, at::Tensor>>{
           {"sparse", matrix.to_sparse()},
           {"sparse_csr", matrix.to_sparse_csr()},
           {"quantized", at::quantize_per_tensor(matrix, 0.1, 0, c10::kQInt8)},
           {"nested", at::_nested_tensor_from_tensor_list({matrix, matrix})},
           {"meta", matrix.to(c10::kMeta)}}) {
    WriteBoth(folder + "/refused_" + name, DictOf({{"part", DictOf({{name, tensor}})}}), /*describe=*/false);
  }
}

// ---- A tensor of each dtype ----

void WriteDtypes(const std::string& folder) {
  RandomStates random(1);
  for (int i = 0; i < static_cast<int>(ScalarType::NumOptions); ++i) {
    const auto type = static_cast<ScalarType>(i);
    if (type == ScalarType::Undefined) continue;
    at::Tensor tensor;
    try {
      tensor = c10::isQIntType(type) ? at::_empty_affine_quantized({3, 4}, at::TensorOptions().dtype(type), 1.0, 0)
                                     : random.Filled({3, 4}, type);
    } catch (const std::exception& error) {
      std::cout << "{\"name\":" << Hex(NameOf(type)) << ",\"unmakeable\":" << Hex(error.what()) << "}\n";
      continue;
    }
    const bool is_kept = std::find(Dtypes().begin(), Dtypes().end(), type) != Dtypes().end();
    WriteBoth(absl::StrCat(folder, "/", NameOf(type)), DictOf({{"x", tensor}}), is_kept);
  }
}

// ---- Reading ----

std::string ReadAll(const StateFile& file, const ReadOptions& options) {
  const absl::StatusOr<IValue> state = file.Read(options);
  return state.ok() ? Describe(*state) : Object("error", Hex(state.status().ToString()));
}

// Each tensor alone, without its checksum, which is another way through the file.
std::string ReadOneByOne(const StateFile& file) {
  std::vector<std::string> items;
  for (size_t i = 0; i < file.tensors().size(); ++i) {
    const absl::StatusOr<at::Tensor> tensor = file.ReadTensor(i, {.verify = false});
    ABSL_CHECK_OK(tensor);
    items.push_back(List({Hex(file.tensors()[i].name), Hex(Values(*tensor))}));
  }
  return List(items);
}

std::string Find(const std::string& path) {
  const absl::StatusOr<StateFile> file = StateFile::Open(path);
  if (!file.ok()) return Object("error", Hex(file.status().ToString()));
  std::vector<std::string> metadata;
  for (const auto& [key, text] : file->metadata()) metadata.push_back(List({Hex(key), Hex(text)}));
  return absl::StrCat("{\"read\":", ReadAll(*file, {}), ",\"map\":", ReadAll(*file, {.map = true}),
                      ",\"one_by_one\":", ReadOneByOne(*file), ",\"metadata\":", List(metadata),
                      ",\"has_checksums\":", file->has_checksums(), ",\"verify\":", Hex(file->Verify().ToString()),
                      "}");
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const std::string mode = arguments.empty() ? "" : arguments[0];
  uint64_t seed;
  int count;
  if (mode == "write" && argc == 5 && absl::SimpleAtoi(arguments[1], &seed) && absl::SimpleAtoi(arguments[2], &count)) {
    cohort::WriteStates(seed, count, arguments[3]);
  } else if (mode == "dtypes" && argc == 3) {
    cohort::WriteDtypes(arguments[1]);
  } else if (mode == "read" && argc == 3) {
    std::ifstream list(arguments[1]);
    for (std::string path; std::getline(list, path);) std::cout << cohort::Find(path) << "\n";
  } else {
    ABSL_CHECK(false) << "see the top of formats_twin.cc";
  }
}
