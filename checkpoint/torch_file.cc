// A .pt file is a zip archive (internal/zip_writer) with one folder:
//
//   archive/data.pkl            the dict, a pickle (internal/pickle_writer) in which a tensor's bytes are a persistent
//                               id that names an entry below
//   archive/.format_version     "1": the entries below are in the order in which the pickle first names them
//   archive/.storage_alignment  of their data
//   archive/byteorder           "little"
//   archive/data/0, 1, ...      the bytes
//   archive/version             "3"
//
// The same records as torch.save's, in the same order. The pickle holds only what torch.load(weights_only=True) admits.
//
// What becomes an entry is a *region*: a stretch of one storage that is used by tensors which overlap each other and
// have the same dtype. So tied weights stay tied, and a row of a large table does not drag the table along. (Python
// ties tensors only if their dtype is the same: an entry has one.)

#include "cohort/checkpoint/torch_file.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "c10/core/Layout.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/internal/pickle_writer.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/utf8.h"
#include "cohort/checkpoint/internal/zip_writer.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

using internal::PickleWriter;
using internal::Quoted;
using internal::ZipWriter;

static_assert(std::endian::native == std::endian::little);

// Tensors that are not plain CPU memory are copied in pieces of at most this size; two copies exist at a time.
constexpr int64_t kStagingBytes = int64_t{16} << 20;

// How Python names a dtype's storage. Older dtypes have a class of storage each. Newer ones have untyped storage, and
// the tensor names its dtype.
struct DtypeNames {
  std::string_view storage;  // empty for newer dtypes
  std::string_view dtype;
};

std::optional<DtypeNames> NamesOf(at::ScalarType type) {
  switch (type) {
    // clang-format off
    case at::kDouble:               return DtypeNames{"DoubleStorage", "float64"};
    case at::kFloat:                return DtypeNames{"FloatStorage", "float32"};
    case at::kHalf:                 return DtypeNames{"HalfStorage", "float16"};
    case at::kBFloat16:             return DtypeNames{"BFloat16Storage", "bfloat16"};
    case at::kComplexDouble:        return DtypeNames{"ComplexDoubleStorage", "complex128"};
    case at::kComplexFloat:         return DtypeNames{"ComplexFloatStorage", "complex64"};
    case at::kLong:                 return DtypeNames{"LongStorage", "int64"};
    case at::kInt:                  return DtypeNames{"IntStorage", "int32"};
    case at::kShort:                return DtypeNames{"ShortStorage", "int16"};
    case at::kChar:                 return DtypeNames{"CharStorage", "int8"};
    case at::kByte:                 return DtypeNames{"ByteStorage", "uint8"};
    case at::kBool:                 return DtypeNames{"BoolStorage", "bool"};
    case at::kComplexHalf:          return DtypeNames{"", "complex32"};
    case at::kUInt16:               return DtypeNames{"", "uint16"};
    case at::kUInt32:               return DtypeNames{"", "uint32"};
    case at::kUInt64:               return DtypeNames{"", "uint64"};
    case at::kFloat8_e5m2:          return DtypeNames{"", "float8_e5m2"};
    case at::kFloat8_e5m2fnuz:      return DtypeNames{"", "float8_e5m2fnuz"};
    case at::kFloat8_e4m3fn:        return DtypeNames{"", "float8_e4m3fn"};
    case at::kFloat8_e4m3fnuz:      return DtypeNames{"", "float8_e4m3fnuz"};
    case at::kFloat8_e8m0fnu:       return DtypeNames{"", "float8_e8m0fnu"};
    // clang-format on
    default:
      return std::nullopt;
  }
}

// One tensor of the dict.
struct Entry {
  std::string_view name;
  // Detached, and without the marks "conjugated" and "negated", so that its memory is its value. They are written
  // apart.
  at::Tensor tensor;
  bool conjugated = false;
  bool negated = false;
  // What it uses of its storage, in elements.
  int64_t begin = 0;
  int64_t end = 0;
  // Filled in by FindRegions.
  size_t region = 0;
};

// One entry of the archive.
struct Region {
  at::Tensor source;  // its elements, in order, are the bytes to write
  int64_t begin = 0;  // in elements of the storage
  int64_t end = 0;
  // The source is a view with holes, of which only the elements are written; it is the region's only tensor.
  bool compact = false;
};

absl::Status Refuse(absl::StatusCode code, std::string_view name, std::string_view why) {
  return absl::Status(code, absl::StrCat("tensor ", Quoted(name), " ", why));
}

absl::Status CheckName(std::string_view name, absl::flat_hash_set<std::string_view>& seen) {
  if (!seen.insert(name).second) {
    return absl::InvalidArgumentError(absl::StrCat("two tensors are named ", Quoted(name)));
  }
  if (!internal::IsUtf8(name)) return Refuse(absl::StatusCode::kInvalidArgument, name, "has a name that is not UTF-8");
  if (name.size() > std::numeric_limits<uint16_t>::max()) {
    return Refuse(absl::StatusCode::kInvalidArgument, name, "has too long a name; at most 65535 bytes are allowed");
  }
  return absl::OkStatus();
}

absl::Status CheckKind(std::string_view name, const at::Tensor& tensor) {
  if (!tensor.defined()) return Refuse(absl::StatusCode::kInvalidArgument, name, "is undefined");
  if (tensor.is_nested())
    return Refuse(absl::StatusCode::kUnimplemented, name, "is nested; only dense tensors can be saved");
  if (tensor.layout() != at::kStrided) {
    return Refuse(
        absl::StatusCode::kUnimplemented, name,
        absl::StrFormat("has layout %s; only dense tensors can be saved", absl::FormatStreamed(tensor.layout())));
  }
  if (!NamesOf(tensor.scalar_type()).has_value()) {
    return Refuse(absl::StatusCode::kUnimplemented, name,
                  absl::StrCat("has dtype ", c10::toString(tensor.scalar_type()),
                               ", which torch.load(weights_only=True) does not hold exactly"));
  }
  if (tensor.is_meta() || !tensor.has_storage()) {
    return Refuse(absl::StatusCode::kInvalidArgument, name,
                  absl::StrCat("has no data (device ", tensor.device().str(), ")"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Entry> MakeEntry(std::string_view name, const at::Tensor& tensor) {
  ABSL_RETURN_IF_ERROR(CheckKind(name, tensor));
  Entry entry{.name = name, .tensor = tensor.detach(), .conjugated = tensor.is_conj(), .negated = tensor.is_neg()};
  if (entry.conjugated) entry.tensor = entry.tensor._conj();
  if (entry.negated) entry.tensor = entry.tensor._neg_view();
  entry.begin = entry.end = entry.tensor.storage_offset();
  if (tensor.numel() == 0) return entry;
  ++entry.end;
  for (int64_t i = 0; i < tensor.dim(); ++i) entry.end += (tensor.size(i) - 1) * tensor.stride(i);
  const int64_t available = static_cast<int64_t>(tensor.storage().nbytes()) / tensor.element_size();
  if (entry.end > available) {
    return Refuse(absl::StatusCode::kInvalidArgument, name,
                  absl::StrCat("needs ", entry.end, " elements of its storage, which has ", available,
                               "; was it freed or resized?"));
  }
  return entry;
}

absl::StatusOr<std::vector<Entry>> MakeEntries(absl::Span<const std::pair<std::string, at::Tensor>> tensors) {
  absl::flat_hash_set<std::string_view> seen;
  std::vector<Entry> entries;
  entries.reserve(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    ABSL_RETURN_IF_ERROR(CheckName(name, seen));
    ABSL_ASSIGN_OR_RETURN(Entry entry, MakeEntry(name, tensor));
    entries.push_back(std::move(entry));
  }
  return entries;
}

// Groups the entries into regions, in the order of each region's first entry, and tells every entry its region.
std::vector<Region> FindRegions(std::vector<Entry>& entries) {
  // Neighbours in this order are neighbours in memory.
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    const Entry& entry = entries[i];
    return std::tuple(entry.tensor.storage().unsafeGetStorageImpl(), entry.tensor.scalar_type(), entry.begin, entry.end,
                      i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });

  std::vector<size_t> first(entries.size());  // of the entries of the same region, the first in the dict
  std::vector<Region> found(entries.size());  // at the index of its first entry
  for (size_t i = 0; i < order.size();) {
    const Entry& leader = entries[order[i]];
    Region region{.source = leader.tensor, .begin = leader.begin, .end = leader.end};
    size_t j = i + 1;
    for (; j < order.size(); ++j) {
      const Entry& next = entries[order[j]];
      if (!next.tensor.is_alias_of(leader.tensor) || next.tensor.scalar_type() != leader.tensor.scalar_type()) break;
      if (next.begin >= region.end) break;
      region.end = std::max(region.end, next.end);
    }
    region.compact = j == i + 1 && leader.tensor.numel() < region.end - region.begin;
    if (!region.compact) region.source = leader.tensor.as_strided({region.end - region.begin}, {1}, region.begin);
    const size_t representative = *std::min_element(order.begin() + i, order.begin() + j);
    for (; i < j; ++i) first[order[i]] = representative;
    found[representative] = std::move(region);
  }

  std::vector<Region> regions;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (first[i] == i) {
      entries[i].region = regions.size();
      regions.push_back(std::move(found[i]));
    } else {
      entries[i].region = entries[first[i]].region;
    }
  }
  return regions;
}

std::vector<int64_t> ContiguousStrides(at::IntArrayRef sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

// The persistent id of the entry's storage, and with it the storage: ("storage", class, "0", "cpu", elements).
void PickleStorage(const Entry& entry, const Region& region, DtypeNames names, PickleWriter& pickle) {
  const int64_t elements = region.source.numel();
  pickle.Mark();
  pickle.String("storage");
  if (names.storage.empty()) {
    pickle.Global("torch.storage", "UntypedStorage");
  } else {
    pickle.Global("torch", names.storage);
  }
  pickle.String(absl::StrCat(entry.region));
  pickle.String("cpu");
  pickle.Int(names.storage.empty() ? elements * static_cast<int64_t>(region.source.element_size()) : elements);
  pickle.Tuple();
  pickle.PersistentId();
}

// _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata]); v3 has the dtype before
// metadata.
void PickleTensor(const Entry& entry, const Region& region, PickleWriter& pickle) {
  const DtypeNames names = *NamesOf(entry.tensor.scalar_type());
  const bool is_typed = !names.storage.empty();
  pickle.Global("torch._utils", is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
  pickle.Mark();
  PickleStorage(entry, region, names, pickle);
  pickle.Int(region.compact ? 0 : entry.begin - region.begin);
  pickle.Ints(entry.tensor.sizes());
  pickle.Ints(region.compact ? ContiguousStrides(entry.tensor.sizes()) : entry.tensor.strides().vec());
  pickle.Bool(false);
  pickle.Global("collections", "OrderedDict");
  pickle.EmptyTuple();
  pickle.Reduce();
  if (!is_typed) pickle.Global("torch", names.dtype);
  if (entry.conjugated || entry.negated) {
    pickle.EmptyDict();
    pickle.Mark();
    for (const auto& [mark, is_set] : {std::pair("conj", entry.conjugated), std::pair("neg", entry.negated)}) {
      if (!is_set) continue;
      pickle.String(mark);
      pickle.Bool(true);
    }
    pickle.SetItems();
  }
  pickle.Tuple();
  pickle.Reduce();
}

std::string PickleDict(absl::Span<const Entry> entries, absl::Span<const Region> regions) {
  PickleWriter pickle;
  pickle.EmptyDict();
  pickle.Mark();
  for (const Entry& entry : entries) {
    pickle.String(entry.name);
    PickleTensor(entry, regions[entry.region], pickle);
  }
  pickle.SetItems();
  return pickle.Finish();
}

// An integer type of the same size: copying as integers is exact and works for every dtype, also those that LibTorch's
// kernels know little of.
at::ScalarType IntegerOfSize(int64_t num_bytes) {
  switch (num_bytes) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return at::kComplexDouble;  // 16 bytes; no integer is as long
  }
}

// Appends the elements of `tensor`, in order.
absl::Status AppendElements(const at::Tensor& tensor, ZipWriter& zip) {
  const int64_t num_bytes = static_cast<int64_t>(tensor.nbytes());
  if (tensor.is_cpu() && tensor.is_contiguous()) {
    return zip.Append(std::string_view(static_cast<const char*>(tensor.const_data_ptr()), num_bytes));
  }
  if (num_bytes <= kStagingBytes) {
    return AppendElements(tensor.view(IntegerOfSize(tensor.element_size())).contiguous().cpu(), zip);
  }
  const int64_t rows = tensor.size(0);
  if (rows == 1) return AppendElements(tensor.select(0, 0), zip);
  ABSL_RETURN_IF_ERROR(AppendElements(tensor.narrow(0, 0, rows / 2), zip));
  return AppendElements(tensor.narrow(0, rows / 2, rows - rows / 2), zip);
}

absl::Status Write(absl::Span<const std::pair<std::string, at::Tensor>> tensors, WritableFile& file) {
  ABSL_ASSIGN_OR_RETURN(std::vector<Entry> entries, MakeEntries(tensors));
  const std::vector<Region> regions = FindRegions(entries);

  ZipWriter zip(file);
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/data.pkl", PickleDict(entries, regions)));
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/.format_version", "1"));
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/.storage_alignment", absl::StrCat(ZipWriter::kAlignment)));
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/byteorder", "little"));
  for (size_t i = 0; i < regions.size(); ++i) {
    const at::Tensor& source = regions[i].source;
    ABSL_RETURN_IF_ERROR(zip.BeginEntry(absl::StrCat("archive/data/", i), static_cast<int64_t>(source.nbytes())));
    ABSL_RETURN_IF_ERROR(AppendElements(source, zip));
    ABSL_RETURN_IF_ERROR(zip.EndEntry());
  }
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/version", "3\n"));
  return zip.Finish();
}

}  // namespace

absl::Status WriteTorchFile(absl::Span<const std::pair<std::string, at::Tensor>> tensors, WritableFile& file) {
  absl::Status written;
  ABSL_RETURN_IF_ERROR(InvokeTorch(absl::InfiniteFuture(), [&] { written = Write(tensors, file); }));
  return written;
}

}  // namespace cohort
