// File: safetensors_parser.h

#ifndef COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_PARSER_H_
#define COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_PARSER_H_

#include <cstdint>
#include <deque>

#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"

namespace cohort::internal {

// What the JSON of a header says, in its order. Every field is there and of the right kind; nothing else is checked:
// names may occur twice, and offsets and shapes be any numbers that are not negative.
struct ParsedSafetensorsHeader {
  std::deque<SafetensorsEntry> entries;  // which grows without a copy of all
  SafetensorsMetadata metadata;

  // What an entry is charged for, beside HeapBytes of its parts.
  static constexpr int64_t kEntryBytes = static_cast<int64_t>(sizeof(SafetensorsEntry)) + kBlockBytes;
};

// Reads the `num_bytes` of `file` from `offset` on. What is returned stays charged to `budget`.
//
// Errors: InvalidArgument, naming the tensor; those of `budget` and of RandomAccessFile::Read.
absl::StatusOr<ParsedSafetensorsHeader> ParseSafetensorsHeader(const RandomAccessFile& file, int64_t offset,
                                                               int64_t num_bytes, MemoryBudget& budget);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_PARSER_H_
