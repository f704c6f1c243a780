// File: safetensors_reader.h

#ifndef COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_READER_H_
#define COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_READER_H_

#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

struct SafetensorsFile {
  // Every tensor is contiguous and has a storage of its own; both are in the order of the header. The tree of a file
  // that is not ours is a dict from names to tensors. Checksums are there for all storages or for none.
  StoredState state;
  SafetensorsMetadata metadata;  // in its order, without the keys that are ours
};

// Local. Reads the header, and not the tensors' data. Takes files as the format says: see safetensors_header.h. Those
// whose metadata has any key that begins with "cohort." must be as ours are; but for the checksums, if both are absent.
//
// Memory: what is returned takes less than the file's size and 48 MiB, or is refused.
//
// Errors, for a caller to prefix with the file's name: DataLoss if the file is shorter than its header says, or the
// header's checksum is not that of the header; InvalidArgument for everything else that is not as it should be, naming
// the tensor; those of RandomAccessFile::Read.
absl::StatusOr<SafetensorsFile> ReadSafetensors(const RandomAccessFile& file);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SAFETENSORS_READER_H_
