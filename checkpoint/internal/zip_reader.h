// File: zip_reader.h
//
// ZipDirectory: what a zip archive holds and where, for archives such as torch.save and ZipWriter write.

#ifndef COHORT_CHECKPOINT_INTERNAL_ZIP_READER_H_
#define COHORT_CHECKPOINT_INTERNAL_ZIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/random_access_file.h"

namespace cohort::internal {

struct ZipEntry {
  std::string_view name;  // as the file has it: any bytes; lives as long as the ZipDirectory
  int64_t offset = 0;     // of its data in the file
  int64_t num_bytes = 0;  // that it takes there
  uint32_t crc32 = 0;     // of its contents
  bool is_compressed = false;
};

class ZipDirectory {
 public:
  // Local. Reads the central directory and every entry's local header, but no entry's data. What is returned lies
  // within the file and does not overlap; no name occurs twice.
  //
  // Memory: less than the directory and the headers take in the file.
  //
  // Errors: DataLoss if the file does not end with a directory's end record, as one that was cut; InvalidArgument for
  // everything else that is not as it should be, naming the entry; those of RandomAccessFile::Read.
  static absl::StatusOr<ZipDirectory> Read(const RandomAccessFile& file);

  ZipDirectory(ZipDirectory&&) = default;
  ZipDirectory& operator=(ZipDirectory&&) = default;

  // In the order of the file.
  absl::Span<const ZipEntry> entries() const { return entries_; }

  // Null if there is none such.
  const ZipEntry* Find(std::string_view name) const;

  // The memory that it takes.
  int64_t num_bytes() const;

 private:
  ZipDirectory() = default;
  absl::Status Parse(int64_t num_entries);
  absl::Status FindData(const RandomAccessFile& file, int64_t directory_offset);
  absl::Status SortByName();

  std::vector<char> records_;  // the central directory; names point into it
  std::vector<ZipEntry> entries_;
  std::vector<uint32_t> by_name_;  // places in entries_
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_ZIP_READER_H_
