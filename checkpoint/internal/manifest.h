// File: manifest.h
//
// The manifest of a checkpoint: the file that says what the checkpoint is, and that it is whole.
//
//   {"version": 1, "run_id": "7f3a", "sequence": 12, "step": 1200, "saved": "2026-12-02T10:00:00.123456Z",
//    "world_size": 2,
//    "model": "5d1e0c22", "metrics": {"loss": 0.5}, "files": [{"name": "state.pt", "bytes": 123, "crc32": "0a1b2c3d"}],
//    "manifest_crc32": "9c0de001"}
//
// (The first two lines are one.) The last member is the CRC-32 of all that stands before the comma before it. Metrics
// that are not finite are "NaN", "Infinity" and "-Infinity". Members that are not known are for later cohorts of the
// same version.

#ifndef COHORT_CHECKPOINT_INTERNAL_MANIFEST_H_
#define COHORT_CHECKPOINT_INTERNAL_MANIFEST_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/checkpoint/checkpoint_info.h"

namespace cohort::internal {

inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kPinnedName = "pinned";
inline constexpr int64_t kMaxManifestBytes = 1 << 20;

// The last number that a checkpoint of a run can have.
inline constexpr int64_t kMaxSequence = std::numeric_limits<int64_t>::max() - 1;

// What may stand in a manifest. InvalidArgument: the value, and what is allowed.
absl::Status CheckRunId(std::string_view id);
absl::Status CheckModel(std::string_view model);
absl::Status CheckMetricName(std::string_view name);
absl::Status CheckPayloadName(std::string_view name);

// `info`, but for its path and whether it is pinned, must pass these, and have what DecodeManifest allows. What is
// finer than a microsecond of `saved` is lost.
std::string EncodeManifest(const CheckpointInfo& info);

// Of a text of unknown origin. The path is empty and `pinned` false.
//
// Errors:
//   InvalidArgument  it is longer than kMaxManifestBytes, of another version, or no manifest: says which member, its
//                    value and what is allowed
//   DataLoss         its checksum is another one, or missing: it is damaged
// After any change of a single bit it is one of these.
absl::StatusOr<CheckpointInfo> DecodeManifest(std::string_view text);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_MANIFEST_H_
