// File: crc32.h

#ifndef COHORT_CHECKPOINT_INTERNAL_CRC32_H_
#define COHORT_CHECKPOINT_INTERNAL_CRC32_H_

#include <cstdint>
#include <string_view>

namespace cohort::internal {

// The CRC-32 of zip files: of what `crc` is the CRC-32 of (0: of nothing), followed by `bytes`.
uint32_t ExtendCrc32(uint32_t crc, std::string_view bytes);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_CRC32_H_
