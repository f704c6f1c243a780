// The header names the tensors in the order of the state, so that a dict of tensors reads back in its order. Their data
// are sorted by the size of an element, largest first, as the format's own library does: then each is aligned, without
// the gaps that the format forbids.

#include "cohort/checkpoint/internal/safetensors_layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/duplicate_name.h"
#include "cohort/checkpoint/internal/json_writer.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/safetensors_reader.h"
#include "cohort/checkpoint/internal/state_json.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/utf8.h"

namespace cohort::internal {
namespace {

constexpr size_t kDataAlignment = 64;

// What a smaller header describes takes less memory than ReadSafetensors allows any file (at most 60 times the text).
constexpr size_t kSmallHeader = 512 << 10;

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

absl::Status CheckMetadata(const SafetensorsMetadata& metadata) {
  std::vector<std::string_view> keys;
  for (const auto& [key, text] : metadata) {
    if (absl::StartsWith(key, kOwnPrefix)) return Invalid("metadata: the key ", Quoted(key), " is cohort's own");
    if (!IsUtf8(key)) return Invalid("metadata: the key ", Quoted(key), " is not UTF-8");
    if (!IsUtf8(text)) return Invalid("metadata: the text of ", Quoted(key), " is not UTF-8");
    keys.push_back(key);
  }
  if (const auto twice = DuplicateName(std::move(keys)))
    return Invalid("metadata: the key ", Quoted(*twice), " occurs twice");
  return absl::OkStatus();
}

// In the order of the header, with sizes but without offsets.
absl::StatusOr<std::vector<SafetensorsEntry>> MakeEntries(const std::vector<NamedTensor>& named,
                                                          absl::Span<const TensorShape> tensors) {
  std::vector<SafetensorsEntry> entries;
  entries.reserve(named.size());
  for (const NamedTensor& tensor : named) {
    const TensorShape& shape = tensors[tensor.tensor.index];
    if (InfoOf(shape.dtype).safetensors.empty()) {
      return Invalid("the tensor ", Quoted(tensor.name), ": safetensors files have no dtype ",
                     InfoOf(shape.dtype).name);
    }
    entries.push_back({.name = tensor.name, .dtype = shape.dtype, .sizes = shape.sizes});
  }
  return entries;
}

// Places in `entries`, in the order of the data, whose offsets are set.
absl::StatusOr<std::vector<size_t>> PlaceData(std::vector<SafetensorsEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  absl::c_stable_sort(order, [&](size_t a, size_t b) {
    return InfoOf(entries[a].dtype).num_bytes > InfoOf(entries[b].dtype).num_bytes;
  });
  int64_t end = 0;
  for (const size_t place : order) {
    SafetensorsEntry& entry = entries[place];
    entry.begin = end;
    const std::optional<int64_t> num_bytes = NumBytes(entry.dtype, entry.sizes);
    if (!num_bytes.has_value() || __builtin_add_overflow(end, *num_bytes, &end)) {
      return Invalid("the tensor ", Quoted(entry.name), ": the data up to it do not fit any file");
    }
    entry.end = end;
  }
  return order;
}

void AppendField(std::string_view key, std::string_view text, std::string& json) {
  if (json.back() != '{') json += ',';
  AppendJsonString(key, json);
  json += ':';
  AppendJsonString(text, json);
}

void AppendEntry(const SafetensorsEntry& entry, std::string& json) {
  json += ',';
  AppendJsonString(entry.name, json);
  absl::StrAppend(&json, R"(:{"dtype":")", InfoOf(entry.dtype).safetensors, R"(","shape":[)",
                  absl::StrJoin(entry.sizes, ","), R"(],"data_offsets":[)", entry.begin, ",", entry.end, "]}");
}

// Sets what has to do with the header; `metadata` is all that comes before the checksums.
void MakeHeader(const SafetensorsMetadata& metadata, const std::vector<SafetensorsEntry>& entries,
                SafetensorsLayout& layout) {
  std::string json = absl::StrCat("{\"", kMetadataName, "\":{");
  for (const auto& [key, text] : metadata) {
    AppendField(key, text, json);
    layout.header_checksum.AddMetadata(key, text);
  }
  layout.header_checksum.EndMetadata();
  for (const SafetensorsEntry& entry : entries) layout.header_checksum.AddTensor(entry);
  layout.checksums_offset = kSafetensorsLengthBytes + static_cast<int64_t>(json.size());
  json += layout.Checksums(std::vector<uint32_t>(entries.size())).bytes;
  json += '}';
  for (const SafetensorsEntry& entry : entries) AppendEntry(entry, json);
  json += '}';
  while ((kSafetensorsLengthBytes + json.size()) % kDataAlignment != 0) json += ' ';

  for (int i = 0; i < kSafetensorsLengthBytes; ++i) layout.header += static_cast<char>(json.size() >> (8 * i));
  layout.header += json;
}

// A file whose header is there already.
class HeaderOnly : public RandomAccessFile {
 public:
  explicit HeaderOnly(const SafetensorsLayout& layout) : layout_(layout) {}
  int64_t num_bytes() const override { return layout_.num_bytes; }
  absl::Status Read(int64_t offset, int64_t num_bytes, char* buffer) const override {
    layout_.header.copy(buffer, num_bytes, offset);
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<char>> Map() const override { return absl::UnimplementedError("only the header"); }

 private:
  const SafetensorsLayout& layout_;
};

absl::Status CheckReadable(const SafetensorsLayout& layout) {
  if (layout.header.size() > kMaxSafetensorsHeader + kSafetensorsLengthBytes) {
    return Invalid("the header would have ", layout.header.size(), " bytes, and safetensors files allow ",
                   kMaxSafetensorsHeader);
  }
  if (layout.header.size() <= kSmallHeader) return absl::OkStatus();
  const absl::Status status = ReadSafetensors(HeaderOnly(layout)).status();
  return status.ok() ? status : Invalid("the file could not be read: ", status.message());
}

}  // namespace

SafetensorsLayout::Overwrite SafetensorsLayout::Checksums(absl::Span<const uint32_t> crc32s) const {
  ABSL_CHECK_EQ(crc32s.size(), header_order.size());
  std::string digits;
  digits.reserve(header_order.size() * kChecksumDigits);
  for (const size_t index : header_order) digits += ChecksumDigits(crc32s[index]);
  return {checksums_offset, absl::StrCat(",\"", kChecksumsKey, "\":\"", digits, "\",\"", kHeaderChecksumKey, "\":\"",
                                         ChecksumDigits(header_checksum.With(digits)), "\"")};
}

absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const StateTree& tree, absl::Span<const TensorShape> tensors,
                                                    const SafetensorsMetadata& metadata) {
  ABSL_RETURN_IF_ERROR(CheckMetadata(metadata));
  ABSL_ASSIGN_OR_RETURN(const std::vector<NamedTensor> named, NameTensors(tree));
  ABSL_CHECK_EQ(named.size(), tensors.size()) << "tensors that the state does not have";
  ABSL_ASSIGN_OR_RETURN(std::vector<SafetensorsEntry> entries, MakeEntries(named, tensors));
  ABSL_ASSIGN_OR_RETURN(const std::vector<size_t> order, PlaceData(entries));

  SafetensorsMetadata fields = metadata;
  fields.emplace_back(kFormatKey, kFormat);
  if (!IsOnlyTensors(tree, named)) fields.emplace_back(kStateKey, StateToJson(tree, named));

  SafetensorsLayout layout;
  for (const NamedTensor& tensor : named) layout.header_order.push_back(tensor.tensor.index);
  MakeHeader(fields, entries, layout);
  layout.num_bytes = static_cast<int64_t>(layout.header.size());
  layout.offsets.resize(tensors.size());
  for (const size_t place : order) {
    layout.order.push_back(layout.header_order[place]);
    layout.offsets[layout.header_order[place]] = static_cast<int64_t>(layout.header.size()) + entries[place].begin;
    layout.num_bytes += entries[place].end - entries[place].begin;
  }
  ABSL_RETURN_IF_ERROR(CheckReadable(layout));
  return layout;
}

}  // namespace cohort::internal
