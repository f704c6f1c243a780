// File: dataset_file.h
//
// A data set in a file, which may be larger than memory: a tensor "features" [rows, ...] and a tensor "targets" [rows,
// ...], of any dtypes, as safetensors.torch.save_file({"features": x, "targets": y}, path) writes them, or
// WriteDatasetFile.

#ifndef COHORT_TRAINERS_DATA_DATASET_FILE_H_
#define COHORT_TRAINERS_DATA_DATASET_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/third_party/libtorch/string_abi.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {

struct DatasetFileOptions {
  // Compares the checksums of the whole file before anything is used. Each rank that does so reads all of it.
  bool verify = false;

  // Copies rows out of the mapped file instead of reading them. Faster for rows of less than 4 KiB; but if the file is
  // cut meanwhile, or the disk fails, that kills the process (SIGBUS), where otherwise it is the error of a batch.
  bool map = false;
};

// Local. The rows of such a file. Ranks that open the same file share the system's copy of it: in either way a rank's
// own memory holds a batch and no more, and what is read once is read from memory the next time, as long as there is
// room.
//
// The file stays open, so that it may be replaced, or removed, while it is used; it must not be changed. The checksum
// is made of the tensors' names, sizes, dtypes and their checksums in the file; of a file without checksums (Python
// writes none) it is made of rows instead: kSampledRows from the first to the last one, or as few as make
// kSampledBytes, but 2.
//
// Errors: those of StateFile::Open, Verify and ReadRows, and
//   NotFound           there is no tensor "features" or "targets" (lists what there is)
//   InvalidArgument    they have no rows, or not the same number
absl::StatusOr<std::unique_ptr<RowSource>> OpenDatasetFile(const std::string& path,
                                                           const DatasetFileOptions& options = {});

inline constexpr int64_t kSampledRows = 1024;
inline constexpr int64_t kSampledBytes = int64_t{64} << 20;

// Local. Writes all rows of `source` into `file` (empty until then) as a safetensors file with checksums. Takes memory
// for all of them at once.
//
// Errors: those of RowSource::Read and WriteSafetensorsFile.
absl::Status WriteDatasetFile(const RowSource& source, WritableFile& file);

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_DATASET_FILE_H_
