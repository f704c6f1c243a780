// File: crc32.h

#ifndef COHORT_CHECKPOINT_INTERNAL_CRC32_H_
#define COHORT_CHECKPOINT_INTERNAL_CRC32_H_

#include <cstdint>
#include <string_view>

#include "lzma.h"

namespace cohort::internal {

// The CRC-32 that zip has. `crc` is that of what stands before `bytes`.
inline uint32_t Crc32(std::string_view bytes, uint32_t crc = 0) {
  return lzma_crc32(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), crc);
}

// The CRC-32 of bytes whose beginning has the CRC-32 `first` and whose last `second_bytes` bytes have `second`, in less time
// than 1 KiB takes.
uint32_t CombineCrc32(uint32_t first, uint32_t second, int64_t second_bytes);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_CRC32_H_
