// File: random_access_file.h
//
// RandomAccessFile: a file that is read anywhere.

#ifndef COHORT_CHECKPOINT_INTERNAL_RANDOM_ACCESS_FILE_H_
#define COHORT_CHECKPOINT_INTERNAL_RANDOM_ACCESS_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::internal {

// Thread-safe.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;

  // Its size when it was opened.
  virtual int64_t num_bytes() const = 0;

  // Reads exactly `num_bytes` from `offset` on into `buffer`. The caller has checked that they lie within num_bytes().
  //
  // Errors: DataLoss if the file has become shorter; otherwise the operating system's.
  virtual absl::Status Read(int64_t offset, int64_t num_bytes, char* buffer) const = 0;

  // The whole file as memory, for as long as what is returned lives, which may be longer than this object. What is
  // written there stays private to this process. A file that is cut meanwhile ends a process that reads there (SIGBUS),
  // as with every mapped file: cohort's own writers replace files and never change one.
  virtual absl::StatusOr<std::shared_ptr<char>> Map() const = 0;
};

// Opens a regular file; waits for nothing else (a pipe or a device is refused).
//
// Errors: as FileSystem's, with `path`; InvalidArgument if it is no regular file.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccessFile(const std::string& path);

// `contents` as a file, for tests; they are not copied and must outlive it.
std::unique_ptr<RandomAccessFile> MemoryAsFile(std::string_view contents);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_RANDOM_ACCESS_FILE_H_
