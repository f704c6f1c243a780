#include "cohort/checkpoint/internal/safetensors_header.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "lzma.h"

namespace cohort::internal {

std::optional<int64_t> NumBytes(Dtype dtype, absl::Span<const int64_t> sizes) {
  int64_t num_bytes = InfoOf(dtype).num_bytes;
  int64_t stride_bytes = num_bytes;  // strides are counted as if no dimension was 0
  for (const int64_t size : sizes) {
    if (size < 0 || __builtin_mul_overflow(stride_bytes, std::max<int64_t>(size, 1), &stride_bytes))
      return std::nullopt;
    num_bytes *= size;  // not more than stride_bytes
  }
  return num_bytes;
}

void HeaderChecksum::AddNumber(int64_t number) {
  uint8_t bytes[8];
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(static_cast<uint64_t>(number) >> (8 * i));
  crc_ = lzma_crc32(bytes, sizeof(bytes), crc_);
}

void HeaderChecksum::AddText(std::string_view text) {
  AddNumber(static_cast<int64_t>(text.size()));
  crc_ = lzma_crc32(reinterpret_cast<const uint8_t*>(text.data()), text.size(), crc_);
}

void HeaderChecksum::AddMetadata(std::string_view key, std::string_view value) {
  if (key == kChecksumsKey || key == kHeaderChecksumKey) return;
  AddText(key);
  AddText(value);
}

void HeaderChecksum::AddTensor(const SafetensorsEntry& tensor) {
  AddText(tensor.name);
  AddText(InfoOf(tensor.dtype).safetensors);
  AddNumber(static_cast<int64_t>(tensor.sizes.size()));
  for (const int64_t size : tensor.sizes) AddNumber(size);
  AddNumber(tensor.begin);
  AddNumber(tensor.end);
}

uint32_t HeaderChecksum::With(std::string_view checksums) const {
  HeaderChecksum all = *this;
  all.AddText(checksums);
  return all.crc_;
}

std::string ChecksumDigits(uint32_t checksum) { return absl::StrFormat("%08x", checksum); }

}  // namespace cohort::internal
