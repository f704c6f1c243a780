// The layout, entry by entry:
//
//   local header   30 bytes, name, extra fields: zip64 (if the entry's size or offset needs it), then "FB", whose
//                  length brings the data to a multiple of kAlignment
//   data
//   descriptor     CRC-32 and sizes; none for an empty entry
//
// then the central directory and its end records.
//
// The CRC follows the data (bit 3 of the flags), because we write front to back and read a tensor only once. Lengths
// are those that torch.save's zip library (miniz) produces, odd cases included: torch.load can be told to compute where
// an entry's data begin instead of reading headers (torch.utils.serialization.config.load.calculate_storage_offsets),
// and repeats that arithmetic. The odd cases: an entry beyond 4 GiB has its offset, which the standard wants in the
// central directory only, in the zip64 field of its local header as well; and its descriptor is the long one. Readers
// go by the central directory and do not care.

#include "cohort/checkpoint/internal/zip_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/append_and_checksum.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/writable_file.h"

namespace cohort::internal {
namespace {

// Values from here on do not fit into the 16 and 32 bit fields; they stand for "see the zip64 record".
constexpr int64_t kMax16 = std::numeric_limits<uint16_t>::max();
constexpr int64_t kMax32 = std::numeric_limits<uint32_t>::max();

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDescriptor = 0x08074b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr uint32_t kEnd = 0x06054b50;

constexpr uint16_t kZip64Field = 0x0001;
constexpr uint16_t kPaddingField = 'F' | 'B' << 8;

constexpr uint16_t kVersionNeeded = 20;
constexpr uint16_t kVersionNeededZip64 = 45;
constexpr uint16_t kMadeBy = 3 << 8 | 45;                // Unix, which gives a meaning to:
constexpr uint32_t kUnixMode = uint32_t{0100644} << 16;  // a file, rw-r--r--
constexpr uint16_t kDate = 0 << 9 | 1 << 5 | 1;          // 1980-01-01, the earliest there is
constexpr uint16_t kCrcFollows = 1 << 3;

class Record {
 public:
  Record& U16(uint64_t value) { return Append(value, 2); }
  Record& U32(uint64_t value) { return Append(value, 4); }
  Record& U64(uint64_t value) { return Append(value, 8); }
  Record& Bytes(std::string_view bytes) {
    bytes_.append(bytes);
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  Record& Append(uint64_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  std::string bytes_;
};

bool NeedsZip64(int64_t num_bytes, int64_t offset) { return num_bytes >= kMax32 || offset >= kMax32; }

// The zip64 extra field: of an entry's sizes and offset those that do not fit into 32 bits.
std::string Zip64Field(int64_t num_bytes, int64_t offset) {
  Record values;
  if (num_bytes >= kMax32) values.U64(num_bytes).U64(num_bytes);
  if (offset >= kMax32) values.U64(offset);
  if (values.bytes().empty()) return "";
  return Record().U16(kZip64Field).U16(values.bytes().size()).Bytes(values.bytes()).bytes();
}

// The fields that local header and directory entry have in common, up to the sizes.
Record Common(uint32_t signature, int64_t num_bytes, int64_t offset) {
  Record record;
  record.U32(signature);
  if (signature == kDirectoryEntry) record.U16(kMadeBy);
  record.U16(NeedsZip64(num_bytes, offset) ? kVersionNeededZip64 : kVersionNeeded);
  return record.U16(num_bytes > 0 ? kCrcFollows : 0).U16(0 /* stored */).U16(0 /* midnight */).U16(kDate);
}

}  // namespace

absl::Status ZipWriter::BeginEntry(std::string_view name, int64_t num_bytes) {
  ABSL_CHECK_LE(static_cast<int64_t>(name.size()), kMax16);
  name_ = name;
  num_bytes_ = num_bytes;
  num_appended_ = 0;
  crc_ = 0;
  header_offset_ = file_.num_bytes();
  const std::string zip64 = Zip64Field(num_bytes, header_offset_);
  const int64_t data_if_unpadded = header_offset_ + 30 + static_cast<int64_t>(name.size() + zip64.size()) + 4;
  const int64_t padding = (kAlignment - data_if_unpadded % kAlignment) % kAlignment;

  Record header = Common(kLocalHeader, num_bytes, header_offset_);
  const int64_t size_field = num_bytes >= kMax32 ? kMax32 : 0;
  header.U32(0).U32(size_field).U32(size_field);  // in the descriptor
  header.U16(name.size()).U16(zip64.size() + 4 + padding).Bytes(name).Bytes(zip64);
  header.U16(kPaddingField).U16(padding).Bytes(std::string(padding, 'Z'));
  return file_.Append(header.bytes());
}

absl::Status ZipWriter::Append(std::string_view bytes) {
  ABSL_ASSIGN_OR_RETURN(const uint32_t crc, AppendAndChecksum(bytes, file_));
  crc_ = CombineCrc32(crc_, crc, static_cast<int64_t>(bytes.size()));
  num_appended_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status ZipWriter::EndEntry() {
  ABSL_CHECK_EQ(num_appended_, num_bytes_) << name_;
  const std::string zip64 = Zip64Field(num_bytes_, header_offset_);
  const int64_t size_field = std::min(num_bytes_, kMax32);

  Record entry = Common(kDirectoryEntry, num_bytes_, header_offset_);
  entry.U32(crc_).U32(size_field).U32(size_field).U16(name_.size()).U16(zip64.size());
  entry.U16(0 /* comment */).U16(0 /* disk */).U16(0 /* not text */).U32(kUnixMode);
  entry.U32(std::min(header_offset_, kMax32)).Bytes(name_).Bytes(zip64);
  directory_.append(entry.bytes());
  ++num_entries_;

  if (num_bytes_ == 0) return absl::OkStatus();
  Record descriptor;
  descriptor.U32(kDescriptor).U32(crc_);
  if (NeedsZip64(num_bytes_, header_offset_)) {
    descriptor.U64(num_bytes_).U64(num_bytes_);
  } else {
    descriptor.U32(num_bytes_).U32(num_bytes_);
  }
  return file_.Append(descriptor.bytes());
}

absl::Status ZipWriter::AddEntry(std::string_view name, std::string_view contents) {
  ABSL_RETURN_IF_ERROR(BeginEntry(name, static_cast<int64_t>(contents.size())));
  ABSL_RETURN_IF_ERROR(Append(contents));
  return EndEntry();
}

absl::Status ZipWriter::Finish() {
  const int64_t offset = file_.num_bytes();
  const int64_t size = static_cast<int64_t>(directory_.size());
  ABSL_RETURN_IF_ERROR(file_.Append(directory_));
  Record end;
  if (num_entries_ >= kMax16 || size >= kMax32 || offset >= kMax32) {
    end.U32(kZip64End).U64(44 /* bytes that follow */).U16(kMadeBy).U16(kVersionNeededZip64).U32(0).U32(0);
    end.U64(num_entries_).U64(num_entries_).U64(size).U64(offset);
    end.U32(kZip64Locator).U32(0).U64(offset + size).U32(1 /* disks */);
  }
  const int64_t entries_field = std::min(num_entries_, kMax16);
  end.U32(kEnd).U16(0).U16(0).U16(entries_field).U16(entries_field);
  end.U32(std::min(size, kMax32)).U32(std::min(offset, kMax32)).U16(0 /* comment */);
  return file_.Append(end.bytes());
}

}  // namespace cohort::internal
