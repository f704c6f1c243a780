// Any bytes as a manifest and as a run file: as they are, and with the checksum that they would need, which they would hardly
// ever have by chance. What is taken for a manifest must be written as one that says the same.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/log/absl_check.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/run_file.h"

namespace {

using cohort::CheckpointInfo;

void Decode(std::string_view text) {
  const absl::StatusOr<CheckpointInfo> first = cohort::internal::DecodeManifest(text);
  if (!first.ok()) return;
  const std::string written = cohort::internal::EncodeManifest(*first);
  const absl::StatusOr<CheckpointInfo> second = cohort::internal::DecodeManifest(written);
  ABSL_CHECK_OK(second.status()) << written;
  ABSL_CHECK_EQ(cohort::internal::EncodeManifest(*second), written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  Decode(bytes);
  Decode(absl::StrFormat("%s,\n \"manifest_crc32\": \"%08x\"}\n", bytes, cohort::internal::Crc32(bytes)));
  if (const auto run = cohort::internal::DecodeRunFile(bytes); run.ok()) {
    ABSL_CHECK_OK(cohort::internal::DecodeRunFile(cohort::internal::EncodeRunFile(*run)).status());
  }
  return 0;
}
