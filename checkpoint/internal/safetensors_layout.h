// File: safetensors_layout.h
//
// LayOutSafetensors: all of a safetensors file but the tensors' data, before any of them is written.

#ifndef COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_LAYOUT_H_
#define COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

struct TensorShape {
  Dtype dtype = Dtype::kFloat32;
  std::vector<int64_t> sizes;
};

struct SafetensorsLayout {
  // What the file begins with; then come the tensors' data, in this order and without gaps, row-major. All data begin
  // at a multiple of their element's size, and the first at one of 64.
  std::string header;
  std::vector<size_t> order;     // places in the table of tensors
  std::vector<int64_t> offsets;  // in the file, for each place in that table
  int64_t num_bytes = 0;         // of the whole file

  // The header holds checksums of empty data until this is written over it.
  struct Overwrite {
    int64_t offset = 0;
    std::string bytes;
  };
  // `crc32s` are those of the data, for each place in the table of tensors.
  Overwrite Checksums(absl::Span<const uint32_t> crc32s) const;

  // For Checksums().
  std::vector<size_t> header_order;
  int64_t checksums_offset = 0;
  HeaderChecksum header_checksum;
};

// Lays out `tree` and the tensors that its TensorIndex means, each of which must be in it; `metadata` is the caller's.
//
// Errors: InvalidArgument for what such a file cannot hold, as of NameTensors; a dtype that the format lacks; metadata
// whose keys begin with "cohort.", occur twice, or are not UTF-8; a header of more than 100 MB; and what ReadSafetensors
// would refuse, as it takes too much memory.
absl::StatusOr<SafetensorsLayout> LayOutSafetensors(const StateTree& tree, absl::Span<const TensorShape> tensors,
                                                    const SafetensorsMetadata& metadata);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_LAYOUT_H_
