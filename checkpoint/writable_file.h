// File: writable_file.h
//
// WritableFile: what a payload writes into. It never learns what file that is, nor when it becomes visible.

#ifndef COHORT_CHECKPOINT_WRITABLE_FILE_H_
#define COHORT_CHECKPOINT_WRITABLE_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace cohort {

// A file being written, front to back but for fields that are known last. Not thread-safe. Owned by whoever hands it out;
// a payload neither closes nor syncs it.
class WritableFile {
 public:
  virtual ~WritableFile() = default;

  // Local. Appends all of `bytes`; blocks while the disk takes them. The bytes are not kept: the caller may change them
  // once it returns. After an error nothing more is written: every later call returns that error again, so that a
  // payload which does not look at one still cannot end in a file with a hole.
  //
  // Errors: by the operating system's cause, with the path and the bytes written so far: ResourceExhausted (disk full,
  // quota, size limit), Unavailable (I/O error), and so on.
  virtual absl::Status Append(std::string_view bytes) = 0;

  // The same for bytes whose CRC-32 (that of zip and zlib) the caller has computed: who keeps a checksum of the whole file
  // then need not do it again.
  virtual absl::Status AppendWithCrc32(std::string_view bytes, uint32_t crc32) {
    (void)crc32;
    return Append(bytes);
  }

  // Local. Appends `num_bytes` bytes that are known later: what they are is unspecified until Overwrite, of just
  // these, says it.
  virtual absl::Status Reserve(int64_t num_bytes) { return Append(std::string(num_bytes, '\0')); }

  // Local. Fills bytes that Reserve appended, all that one call of it did, once. For a checksum or a length that stands
  // before what it is of. Errors and what comes after them: as Append.
  virtual absl::Status Overwrite(int64_t offset, std::string_view bytes) = 0;

  // Bytes appended so far.
  virtual int64_t num_bytes() const = 0;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_WRITABLE_FILE_H_
