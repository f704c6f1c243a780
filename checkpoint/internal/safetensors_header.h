// File: safetensors_header.h
//
// What the writer and the reader of safetensors files share. The format:
//
//   8 bytes     N, little endian
//   N bytes     JSON, padded with spaces: {"NAME": {"dtype": "F32", "shape": [2, 3], "data_offsets": [BEGIN, END]},
//               ..., "__metadata__": {"KEY": "TEXT", ...}}
//   the rest    the tensors' data: row-major, little endian; without gaps and overlaps
//
// Files of ours have these keys in the metadata, after those of the caller:
//
//   cohort.format            "1"
//   cohort.state             the state, as state_json.h says, if it is more than a dict from names to tensors
//   cohort.checksums         8 hexadecimal digits a tensor, in the order of the header: the CRC-32 of its data
//   cohort.header_checksum   8 hexadecimal digits: HeaderChecksum of all of these
//
// Others may write such files without the two checksums: whoever writes through the format's own library does not know
// the order of what it writes.
//
// So a changed bit shows: in the data by a checksum; in the header because it is no such header any more, or by the
// header's checksum.

#ifndef COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_HEADER_H_
#define COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "cohort/checkpoint/internal/dtype.h"

namespace cohort::internal {

inline constexpr int64_t kSafetensorsLengthBytes = 8;
// Of the JSON with its padding, as the format's own library has it.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;

inline constexpr std::string_view kMetadataName = "__metadata__";
inline constexpr std::string_view kOwnPrefix = "cohort.";
inline constexpr std::string_view kFormatKey = "cohort.format";
inline constexpr std::string_view kFormat = "1";
inline constexpr std::string_view kStateKey = "cohort.state";
inline constexpr std::string_view kChecksumsKey = "cohort.checksums";
inline constexpr std::string_view kHeaderChecksumKey = "cohort.header_checksum";
inline constexpr int kChecksumDigits = 8;

struct SafetensorsEntry {
  std::string name;
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> sizes;
  int64_t begin = 0;  // relative to the end of the header
  int64_t end = 0;
};

// Of a tensor's data; nullopt if they, or its strides, do not fit.
std::optional<int64_t> NumBytes(Dtype dtype, absl::Span<const int64_t> sizes);

using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

// The CRC-32 of these bytes, where a number is 8 bytes, little endian, and a text is its length, a number, and itself:
// for each key of the metadata but the two of checksums, in their order, the key and its text; a text without
// characters; for each tensor its name, its dtype (as in the header), the number of its dimensions, the dimensions,
// begin and end; the text of cohort.checksums.
//
// A checksum over what was read, and not over the bytes of the header, so that its own field needs no special place.
class HeaderChecksum {
 public:
  void AddMetadata(std::string_view key, std::string_view value);
  void EndMetadata() { AddText(""); }
  void AddTensor(const SafetensorsEntry& tensor);

  // Leaves this as it is: the writer knows all but the checksums before it writes.
  uint32_t With(std::string_view checksums) const;

 private:
  void AddNumber(int64_t number);
  void AddText(std::string_view text);

  uint32_t crc_ = 0;
};

// As 8 digits, lower case.
std::string ChecksumDigits(uint32_t checksum);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_HEADER_H_
