// File: string_file.h

#ifndef COHORT_CHECKPOINT_INTERNAL_STRING_FILE_H_
#define COHORT_CHECKPOINT_INTERNAL_STRING_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

// A file that is written into memory, and never fails.
class StringFile final : public WritableFile {
 public:
  absl::Status Append(std::string_view bytes) override {
    contents_.append(bytes);
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    contents_.replace(offset, bytes.size(), bytes);
    return absl::OkStatus();
  }
  int64_t num_bytes() const override { return static_cast<int64_t>(contents_.size()); }

  const std::string& contents() const { return contents_; }

 private:
  std::string contents_;
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_STRING_FILE_H_
