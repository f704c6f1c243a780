// File: checksummed_file.h

#ifndef COHORT_CHECKPOINT_INTERNAL_CHECKSUMMED_FILE_H_
#define COHORT_CHECKPOINT_INTERNAL_CHECKSUMMED_FILE_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

// Passes everything on to another file and computes the CRC-32 of the whole on the way. `file` must outlive the object.
class ChecksummedFile final : public WritableFile {
 public:
  explicit ChecksummedFile(WritableFile& file) : file_(file) {}

  absl::Status Append(std::string_view bytes) override;
  absl::Status AppendWithCrc32(std::string_view bytes, uint32_t crc32) override;
  absl::Status Reserve(int64_t num_bytes) override;
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override;
  int64_t num_bytes() const override { return file_.num_bytes(); }

  // Of all bytes. FailedPrecondition if bytes were reserved and not filled.
  absl::StatusOr<uint32_t> Crc32() const;

 private:
  // Bytes with one checksum. What is reserved is a part of its own: it is known last.
  struct Part {
    int64_t begin = 0;
    int64_t num_bytes = 0;
    uint32_t crc32 = 0;
    bool is_reserved = false;
    bool is_filled = false;
  };
  Part& LastPart();

  WritableFile& file_;
  std::vector<Part> parts_;
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_CHECKSUMMED_FILE_H_
