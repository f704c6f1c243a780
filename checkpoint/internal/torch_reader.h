// File: torch_reader.h
//
// ReadTorchState: what a .pt file holds, but for the tensors' bytes.

#ifndef COHORT_CHECKPOINT_INTERNAL_TORCH_READER_H_
#define COHORT_CHECKPOINT_INTERNAL_TORCH_READER_H_

#include "absl/status/statusor.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/state_tree.h"

namespace cohort::internal {

// Local. Reads a file that torch.save of PyTorch 1.6 or later, or cohort, wrote: what stands in it as in the table of
// ReadPickle. Runs nothing that the file names. Checks the checksums of all that it reads; those of the tensors' bytes
// are for whoever reads them. A checksum of 0 is none, which is what torch.save writes when told to compute none
// (torch.serialization.set_crc32_options(False)).
//
// Time: linear in the size of the directory and the pickle; the tensors' bytes are not read. Memory: until the file is
// known to be good, its size and 48 MiB at most. So a state of more than a million values, or some 300,000 tensors of a
// single element each, may be refused.
//
// Errors, which do not name the file:
//   InvalidArgument  it is of another kind (the message says of which, and how to convert it), of another byte order, or
//                    breaks a rule of its format; it holds what a state does not hold
//   DataLoss         it is cut, or a checksum differs
//   otherwise        those of RandomAccessFile
absl::StatusOr<StoredState> ReadTorchState(const RandomAccessFile& file);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_TORCH_READER_H_
