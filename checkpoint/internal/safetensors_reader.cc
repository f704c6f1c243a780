// Reading:
//
//   1. The first 8 bytes say how long the header is: at most 100 MB, and no longer than the file.
//   2. The header is parsed into entries, one a tensor, and the metadata. No name may occur twice.
//   3. The entries, in the order of their offsets, must follow each other without gap or overlap, be as long as dtype
//      and shape say, and end where the file ends.
//   4. If the file has checksums, the header's must be right. Before that nothing that it says about itself is used.
//   5. The tree is made: of cohort.state, or of the names.

#include "cohort/checkpoint/internal/safetensors_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/duplicate_name.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/safetensors_parser.h"
#include "cohort/checkpoint/internal/state_json.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status WithPrefix(std::string_view prefix, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(prefix, status.message()));
}

using Entries = std::deque<SafetensorsEntry>;

// Step 1.
absl::StatusOr<int64_t> HeaderLength(const RandomAccessFile& file) {
  if (file.num_bytes() < kSafetensorsLengthBytes + 2) {
    return Invalid("no safetensors file: it has ", file.num_bytes(), " bytes, and the smallest one has 10");
  }
  char start[kSafetensorsLengthBytes + 1];
  ABSL_RETURN_IF_ERROR(file.Read(0, sizeof(start), start));
  uint64_t length = 0;
  for (int i = kSafetensorsLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(start[i]);
  if (start[kSafetensorsLengthBytes] != '{') return Invalid("no safetensors file: its header does not begin with {");
  if (length < 2 || length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    return Invalid("no safetensors file: its header would have ", length, " bytes, and 2 to ", kMaxSafetensorsHeader,
                   " are allowed");
  }
  if (static_cast<int64_t>(length) > file.num_bytes() - kSafetensorsLengthBytes) {
    return absl::DataLossError(
        absl::StrCat("the file is cut: it has ", file.num_bytes(), " bytes, and its header alone ", length, " and 8"));
  }
  return static_cast<int64_t>(length);
}

template <typename Items, typename NameOf>
absl::Status CheckDistinct(std::string_view what, const Items& items, const NameOf& name_of, MemoryBudget& budget) {
  std::vector<std::string_view> names;
  ABSL_RETURN_IF_ERROR(ReserveExactly(names, items.size(), budget));
  budget.Refund(HeapBytes(names));
  for (const auto& item : items) names.push_back(name_of(item));
  if (const auto twice = DuplicateName(std::move(names))) return Invalid(what, Quoted(*twice), " occurs twice");
  return absl::OkStatus();
}

// Step 3, for one entry; those before it end at `end`.
absl::Status CheckEntry(const SafetensorsEntry& entry, int64_t end) {
  const auto error = [&](const auto&... parts) {
    return Invalid("the tensor ", Quoted(entry.name), ": its data_offsets are ", entry.begin, " and ", entry.end,
                   parts...);
  };
  if (entry.end < entry.begin) return error(", which is less");
  if (entry.begin != end) {
    return error(", but the data before it end at ", end, entry.begin < end ? ": they overlap" : ": there is a gap");
  }
  const std::optional<int64_t> num_bytes = NumBytes(entry.dtype, entry.sizes);
  if (!num_bytes.has_value())
    return Invalid("the tensor ", Quoted(entry.name), ": its shape is too large for any machine");
  if (entry.end - entry.begin != *num_bytes) return error(", but its dtype and shape take ", *num_bytes, " bytes");
  return absl::OkStatus();
}

// Step 3.
absl::Status CheckEntries(const Entries& entries, int64_t data_bytes, MemoryBudget& budget) {
  ABSL_RETURN_IF_ERROR(CheckDistinct(
      "the tensor ", entries, [](const auto& entry) -> std::string_view { return entry.name; }, budget));
  std::vector<const SafetensorsEntry*> order;
  ABSL_RETURN_IF_ERROR(ReserveExactly(order, entries.size(), budget));
  budget.Refund(HeapBytes(order));
  for (const SafetensorsEntry& entry : entries) order.push_back(&entry);
  absl::c_sort(order,
               [](const auto* a, const auto* b) { return std::pair(a->begin, a->end) < std::pair(b->begin, b->end); });
  int64_t end = 0;
  for (const SafetensorsEntry* entry : order) {
    ABSL_RETURN_IF_ERROR(CheckEntry(*entry, end));
    end = entry->end;
  }
  if (end > data_bytes) {
    return absl::DataLossError(
        absl::StrCat("the file is cut: it has ", data_bytes, " bytes after the header, and its tensors ", end));
  }
  if (end < data_bytes) return Invalid("there are ", data_bytes - end, " bytes after the last tensor's data");
  return absl::OkStatus();
}

bool IsDigits(std::string_view text, size_t count) {
  return text.size() == count &&
         absl::c_all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// What a file of ours says about itself.
struct OwnFields {
  const std::string* format = nullptr;
  const std::string* state = nullptr;
  const std::string* checksums = nullptr;
  const std::string* header_checksum = nullptr;
};

// Null if the file is not ours.
absl::StatusOr<std::optional<OwnFields>> FindOwnFields(const SafetensorsMetadata& metadata) {
  std::optional<OwnFields> own;
  for (const auto& [key, text] : metadata) {
    if (!absl::StartsWith(key, kOwnPrefix)) continue;
    if (!own.has_value()) own.emplace();
    if (key == kFormatKey) {
      own->format = &text;
    } else if (key == kStateKey) {
      own->state = &text;
    } else if (key == kChecksumsKey) {
      own->checksums = &text;
    } else if (key == kHeaderChecksumKey) {
      own->header_checksum = &text;
    } else {
      return Invalid("the metadata have the key ", Quoted(key), ", which is not one of cohort's");
    }
  }
  return own;
}

// Step 4.
absl::Status CheckHeader(const OwnFields& own, const SafetensorsMetadata& metadata, const Entries& entries) {
  if (own.format == nullptr) return Invalid("the metadata have keys of cohort, but not ", Quoted(kFormatKey));
  if (*own.format != kFormat) {
    return Invalid(Quoted(kFormatKey), " is ", Quoted(*own.format), ", and only ", Quoted(kFormat), " can be read");
  }
  // Somebody else's, with a state. A changed bit cannot make such a file of ours: that takes away one of the two.
  if (own.checksums == nullptr && own.header_checksum == nullptr) return absl::OkStatus();
  for (const auto& [key, text] :
       {std::pair(kChecksumsKey, own.checksums), std::pair(kHeaderChecksumKey, own.header_checksum)}) {
    if (text == nullptr) return Invalid("the metadata have checksums of cohort, but not ", Quoted(key));
  }
  if (!IsDigits(*own.checksums, entries.size() * kChecksumDigits)) {
    return Invalid(Quoted(kChecksumsKey), " has to be ", kChecksumDigits, " hexadecimal digits for each of ",
                   entries.size(), " tensors");
  }
  HeaderChecksum checksum;
  for (const auto& [key, text] : metadata) checksum.AddMetadata(key, text);
  checksum.EndMetadata();
  for (const SafetensorsEntry& entry : entries) checksum.AddTensor(entry);
  const std::string digits = ChecksumDigits(checksum.With(*own.checksums));
  if (digits != *own.header_checksum) {
    return absl::DataLossError(absl::StrCat("the header is damaged: its checksum is ", digits, ", and ",
                                            Quoted(*own.header_checksum), " is written in it"));
  }
  return absl::OkStatus();
}

std::vector<int64_t> RowMajor(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= std::max<int64_t>(sizes[i], 1);
  }
  return strides;
}

// Moves the entries into the state and returns their names.
absl::StatusOr<std::vector<std::string>> TakeTensors(Entries entries, int64_t data_offset, const std::string* checksums,
                                                     StoredState& state, MemoryBudget& budget) {
  std::vector<std::string> names;
  ABSL_RETURN_IF_ERROR(ReserveExactly(names, entries.size(), budget));
  ABSL_RETURN_IF_ERROR(ReserveExactly(state.tensors, entries.size(), budget));
  ABSL_RETURN_IF_ERROR(ReserveExactly(state.storages, entries.size(), budget));
  for (SafetensorsEntry& entry : entries) {
    const size_t index = names.size();
    ABSL_RETURN_IF_ERROR(budget.Charge(static_cast<int64_t>(entry.sizes.size() * sizeof(int64_t)) + kBlockBytes));
    StoredTensor& tensor = state.tensors.emplace_back();
    tensor.dtype = entry.dtype;
    tensor.strides = RowMajor(entry.sizes);
    tensor.sizes = std::move(entry.sizes);
    tensor.storage = index;
    StoredBytes& bytes = state.storages.emplace_back();
    bytes.begin = data_offset + entry.begin;
    bytes.num_bytes = entry.end - entry.begin;
    uint32_t crc32 = 0;
    if (checksums != nullptr &&
        absl::SimpleHexAtoi(std::string_view(*checksums).substr(index * kChecksumDigits, kChecksumDigits), &crc32)) {
      bytes.crc32 = crc32;
    }
    names.push_back(std::move(entry.name));
  }
  budget.Refund(static_cast<int64_t>(entries.size()) * ParsedSafetensorsHeader::kEntryBytes);
  return names;
}

// Step 5, for a file that does not say.
absl::StatusOr<StateTree> NamesToTensors(std::vector<std::string> names, MemoryBudget& budget) {
  StateDict dict;
  ABSL_RETURN_IF_ERROR(ReserveExactly(dict.items, names.size(), budget));
  for (size_t i = 0; i < names.size(); ++i) dict.items.emplace_back(std::move(names[i]), StateTree{TensorIndex{i}});
  return StateTree{std::move(dict)};
}

}  // namespace

absl::StatusOr<SafetensorsFile> ReadSafetensors(const RandomAccessFile& file) {
  ABSL_ASSIGN_OR_RETURN(const int64_t length, HeaderLength(file));
  const int64_t data_offset = kSafetensorsLengthBytes + length;
  MemoryBudget budget(file.num_bytes());
  absl::StatusOr<ParsedSafetensorsHeader> header =
      ParseSafetensorsHeader(file, kSafetensorsLengthBytes, length, budget);
  if (!header.ok()) return WithPrefix("the header: ", header.status());
  Entries entries = std::move(header->entries);
  SafetensorsFile result;
  result.metadata = std::move(header->metadata);

  ABSL_RETURN_IF_ERROR(CheckDistinct(
      "the metadata's ", result.metadata, [](const auto& item) -> std::string_view { return item.first; }, budget));
  ABSL_RETURN_IF_ERROR(CheckEntries(entries, file.num_bytes() - data_offset, budget));
  ABSL_ASSIGN_OR_RETURN(const std::optional<OwnFields> own, FindOwnFields(result.metadata));
  if (own.has_value()) {
    ABSL_RETURN_IF_ERROR(CheckHeader(*own, result.metadata, entries));
  }

  ABSL_ASSIGN_OR_RETURN(
      std::vector<std::string> names,
      TakeTensors(std::move(entries), data_offset, own.has_value() ? own->checksums : nullptr, result.state, budget));
  if (own.has_value() && own->state != nullptr) {
    absl::StatusOr<StateTree> tree = StateFromJson(*own->state, names, budget);
    if (!tree.ok()) return WithPrefix(absl::StrCat("the metadata's ", Quoted(kStateKey), ": "), tree.status());
    result.state.tree = *std::move(tree);
  } else {
    ABSL_ASSIGN_OR_RETURN(result.state.tree, NamesToTensors(std::move(names), budget));
  }
  std::erase_if(result.metadata, [](const auto& item) { return absl::StartsWith(item.first, kOwnPrefix); });
  return result;
}

}  // namespace cohort::internal
