#include "cohort/checkpoint/internal/checksummed_file.h"

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/crc32.h"

namespace cohort::internal {
namespace {

// From here on to combine two checksums costs less than to compute one.
constexpr size_t kWorthCombining = 4096;

}  // namespace

ChecksummedFile::Part& ChecksummedFile::LastPart() {
  if (parts_.empty() || parts_.back().is_reserved) parts_.push_back({.begin = file_.num_bytes()});
  return parts_.back();
}

absl::Status ChecksummedFile::Append(std::string_view bytes) {
  Part& part = LastPart();
  part.crc32 = internal::Crc32(bytes, part.crc32);
  part.num_bytes += static_cast<int64_t>(bytes.size());
  return file_.Append(bytes);
}

absl::Status ChecksummedFile::AppendWithCrc32(std::string_view bytes, uint32_t crc32) {
  if (bytes.size() < kWorthCombining) return Append(bytes);
  Part& part = LastPart();
  part.crc32 = CombineCrc32(part.crc32, crc32, static_cast<int64_t>(bytes.size()));
  part.num_bytes += static_cast<int64_t>(bytes.size());
  return file_.AppendWithCrc32(bytes, crc32);
}

absl::Status ChecksummedFile::Reserve(int64_t num_bytes) {
  parts_.push_back({.begin = file_.num_bytes(), .num_bytes = num_bytes, .is_reserved = true});
  return file_.Reserve(num_bytes);
}

absl::Status ChecksummedFile::Overwrite(int64_t offset, std::string_view bytes) {
  for (Part& part : parts_) {
    if (!part.is_reserved || part.is_filled) continue;
    if (part.begin != offset || part.num_bytes != static_cast<int64_t>(bytes.size())) continue;
    part.is_filled = true;
    part.crc32 = internal::Crc32(bytes);
    return file_.Overwrite(offset, bytes);
  }
  return absl::InvalidArgumentError(absl::StrCat("the ", bytes.size(), " bytes at ", offset,
                                                 " are to be overwritten, and no call of Reserve made just them"));
}

absl::StatusOr<uint32_t> ChecksummedFile::Crc32() const {
  uint32_t crc32 = 0;
  for (const Part& part : parts_) {
    if (part.is_reserved && !part.is_filled) {
      return absl::FailedPreconditionError(
          absl::StrCat("the ", part.num_bytes, " bytes reserved at ", part.begin, " were never filled"));
    }
    crc32 = CombineCrc32(crc32, part.crc32, part.num_bytes);
  }
  return crc32;
}

}  // namespace cohort::internal
