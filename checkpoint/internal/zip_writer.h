// File: zip_writer.h
//
// ZipWriter: writes a zip archive of stored (not compressed) entries, front to back, laid out as torch.save lays it
// out.

#ifndef COHORT_CHECKPOINT_INTERNAL_ZIP_WRITER_H_
#define COHORT_CHECKPOINT_INTERNAL_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

// For every entry: BeginEntry, Append until all its bytes are there, EndEntry. In the end Finish. Local; blocks as
// `file` does. Archives and entries may be larger than 4 GiB and entries more than 65535 (zip64). The bytes depend on
// nothing but names and contents: no time of day.
//
// Memory: about 100 bytes an entry. Errors, of all methods: those of WritableFile::Append.
class ZipWriter {
 public:
  // An entry's bytes begin at a multiple of this in the file, so that a reader can map them as tensors.
  static constexpr int64_t kAlignment = 64;

  // `file` must be empty, and outlive the writer.
  explicit ZipWriter(WritableFile& file) : file_(file) {}

  // `name` is ASCII, shorter than 64 KiB and different from all others.
  absl::Status BeginEntry(std::string_view name, int64_t num_bytes);
  absl::Status Append(std::string_view bytes);
  absl::Status EndEntry();

  absl::Status AddEntry(std::string_view name, std::string_view contents);

  absl::Status Finish();

 private:
  WritableFile& file_;

  // The entry being written.
  std::string name_;
  int64_t header_offset_ = 0;
  int64_t num_bytes_ = 0;
  int64_t num_appended_ = 0;
  uint32_t crc_ = 0;

  std::string directory_;
  int64_t num_entries_ = 0;
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_ZIP_WRITER_H_
