// File: append_and_checksum.h

#ifndef COHORT_CHECKPOINT_INTERNAL_APPEND_AND_CHECKSUM_H_
#define COHORT_CHECKPOINT_INTERNAL_APPEND_AND_CHECKSUM_H_

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

// Appends `bytes`, telling `file` their checksums, and returns the CRC-32 of them all. Where there are several processors and
// much to do, a thread of its own computes the checksums while this one writes.
absl::StatusOr<uint32_t> AppendAndChecksum(std::string_view bytes, WritableFile& file);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_APPEND_AND_CHECKSUM_H_
