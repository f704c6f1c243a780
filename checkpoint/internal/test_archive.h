// File: test_archive.h
//
// For tests of the readers of .pt files: archives in memory.

#ifndef COHORT_CHECKPOINT_INTERNAL_TEST_ARCHIVE_H_
#define COHORT_CHECKPOINT_INTERNAL_TEST_ARCHIVE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {

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

// The bytes of a zip archive of entries, by name and contents.
std::string ZipOf(const std::vector<std::pair<std::string, std::string>>& entries);

// The bytes of a .pt file with this pickle, and with storage i under the key "i".
std::string TorchFileOf(std::string_view pickle, const std::vector<std::string>& storages = {});

// A state as text, for a comparison or a message: as Python would show it, with tensors as
// `tensor(float32, [2, 3], [3, 1], 0, storage 0)` and their marks.
std::string TextOf(const StoredState& state);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_TEST_ARCHIVE_H_
