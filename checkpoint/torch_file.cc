// A .pt file is a zip archive (internal/zip_writer) with one folder:
//
//   archive/data.pkl            the state, a pickle (internal/state_pickle) in which a tensor's bytes are a persistent
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
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/saved_tensor.h"
#include "cohort/checkpoint/internal/state_pickle.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/state_value.h"
#include "cohort/checkpoint/internal/zip_writer.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

using internal::SavedTensor;
using internal::StateParts;
using internal::StoredState;
using internal::StoredTensor;
using internal::ZipWriter;

static_assert(std::endian::native == std::endian::little);

// One entry of the archive.
struct Region {
  at::Tensor source;  // its elements, in order, are the bytes to write
  int64_t begin = 0;  // in elements of the storage
  int64_t end = 0;
  // The source is a view with holes, of which only the elements are written; it is the region's only tensor.
  bool compact = false;
};

struct Regions {
  std::vector<Region> regions;    // in the order of each region's first tensor
  std::vector<size_t> of_tensor;  // the place of each tensor's region
};

Regions FindRegions(const std::vector<SavedTensor>& tensors) {
  // Neighbours in this order are neighbours in memory.
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto place = [&](size_t i) {
    const SavedTensor& saved = tensors[i];
    return std::tuple(saved.tensor.storage().unsafeGetStorageImpl(), saved.dtype, saved.begin, saved.end, i);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return place(a) < place(b); });

  std::vector<size_t> first(tensors.size());  // of the tensors of the same region, the first in the state
  std::vector<Region> found(tensors.size());  // at the index of its first tensor
  for (size_t i = 0; i < order.size();) {
    const SavedTensor& leader = tensors[order[i]];
    Region region{.source = leader.tensor, .begin = leader.begin, .end = leader.end};
    size_t j = i + 1;
    for (; j < order.size(); ++j) {
      const SavedTensor& next = tensors[order[j]];
      if (!next.tensor.is_alias_of(leader.tensor) || next.dtype != leader.dtype || next.begin >= region.end) break;
      region.end = std::max(region.end, next.end);
    }
    region.compact = j == i + 1 && leader.tensor.numel() < region.end - region.begin;
    if (!region.compact) region.source = leader.tensor.as_strided({region.end - region.begin}, {1}, region.begin);
    const size_t representative = *std::min_element(order.begin() + i, order.begin() + j);
    for (; i < j; ++i) first[order[i]] = representative;
    found[representative] = std::move(region);
  }

  Regions result{.of_tensor = std::vector<size_t>(tensors.size())};
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (first[i] == i) {
      result.of_tensor[i] = result.regions.size();
      result.regions.push_back(std::move(found[i]));
    } else {
      result.of_tensor[i] = result.of_tensor[first[i]];
    }
  }
  return result;
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


// What the pickle says of the tensors.
StoredState Describe(StateParts& parts, const Regions& regions) {
  StoredState state{.tree = std::move(parts.tree)};
  state.tensors.reserve(parts.tensors.size());
  for (size_t i = 0; i < parts.tensors.size(); ++i) {
    const SavedTensor& saved = parts.tensors[i];
    const Region& region = regions.regions[regions.of_tensor[i]];
    state.tensors.push_back(
        StoredTensor{.dtype = saved.dtype,
                     .sizes = saved.tensor.sizes().vec(),
                     .strides = region.compact ? ContiguousStrides(saved.tensor.sizes()) : saved.tensor.strides().vec(),
                     .offset = region.compact ? 0 : saved.begin - region.begin,
                     .storage = regions.of_tensor[i],
                     .conjugated = saved.conjugated,
                     .negated = saved.negated});
  }
  for (const Region& region : regions.regions) {
    state.storages.push_back({.num_bytes = static_cast<int64_t>(region.source.nbytes())});
  }
  return state;
}

absl::Status Write(absl::StatusOr<StateParts> parts, WritableFile& file) {
  ABSL_RETURN_IF_ERROR(parts.status());
  const Regions regions = FindRegions(parts->tensors);

  ZipWriter zip(file);
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/data.pkl", internal::PickleState(Describe(*parts, regions))));
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/.format_version", "1"));
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/.storage_alignment", absl::StrCat(ZipWriter::kAlignment)));
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/byteorder", "little"));
  for (size_t i = 0; i < regions.regions.size(); ++i) {
    const at::Tensor& source = regions.regions[i].source;
    ABSL_RETURN_IF_ERROR(zip.BeginEntry(absl::StrCat("archive/data/", i), static_cast<int64_t>(source.nbytes())));
    ABSL_RETURN_IF_ERROR(
        internal::AppendElements(source, [&](std::string_view bytes) { return zip.Append(bytes); }));
    ABSL_RETURN_IF_ERROR(zip.EndEntry());
  }
  ABSL_RETURN_IF_ERROR(zip.AddEntry("archive/version", "3\n"));
  return zip.Finish();
}

}  // namespace

absl::Status WriteTorchFile(const c10::IValue& state, WritableFile& file) {
  return InvokeTorch([&] { return Write(internal::TakeApart(state), file); });
}

absl::Status WriteTorchFile(absl::Span<const std::pair<std::string, at::Tensor>> tensors, WritableFile& file) {
  return InvokeTorch([&] { return Write(internal::TakeApart(tensors), file); });
}

}  // namespace cohort
