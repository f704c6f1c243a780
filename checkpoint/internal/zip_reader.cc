// Reading, from the end of the file:
//
//   1. The end record is the last 22 bytes: archives with a comment, or with bytes after them, are refused, since
//      nobody who writes tensors makes them and a search for the record could be led astray. If a zip64 locator stands
//      before it, the zip64 end record holds the numbers.
//   2. The central directory reaches from where the end record says up to the end records. Its size bounds the number
//      of entries before memory is taken for them.
//   3. Every entry's local header must say the same as the directory: what finds data by either finds the same. Only
//      there stands how long the header is, and so where the data begin.
//   4. Entries stand in the directory in the order of the file, so that an overlap shows between neighbours.
//
// What the directory does not point to is not looked at: descriptors, padding, and gaps.

#include "cohort/checkpoint/internal/zip_reader.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"

namespace cohort::internal {
namespace {

constexpr uint32_t kLocalHeader = 0x04034b50;
constexpr uint32_t kDirectoryEntry = 0x02014b50;
constexpr uint32_t kZip64End = 0x06064b50;
constexpr uint32_t kZip64Locator = 0x07064b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr int64_t kLocalHeaderBytes = 30;
constexpr int64_t kDirectoryEntryBytes = 46;
constexpr int64_t kZip64EndBytes = 56;
constexpr int64_t kZip64LocatorBytes = 20;
constexpr int64_t kEndBytes = 22;

constexpr uint16_t kZip64Field = 0x0001;
constexpr uint16_t kEncrypted = 1 << 0;
constexpr uint16_t kCrcFollows = 1 << 3;
constexpr uint16_t kNameIsUtf8 = 1 << 11;
constexpr uint64_t kMax16 = std::numeric_limits<uint16_t>::max();
constexpr uint64_t kMax32 = std::numeric_limits<uint32_t>::max();

uint64_t LittleEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// The fields of a record, one after the other. The caller has seen to it that they are there.
class Fields {
 public:
  explicit Fields(std::string_view record) : rest_(record) {}
  uint16_t U16() { return static_cast<uint16_t>(LittleEndian(Bytes(2))); }
  uint32_t U32() { return static_cast<uint32_t>(LittleEndian(Bytes(4))); }
  uint64_t U64() { return LittleEndian(Bytes(8)); }
  std::string_view Bytes(size_t num_bytes) {
    const std::string_view bytes = rest_.substr(0, num_bytes);
    rest_.remove_prefix(num_bytes);
    return bytes;
  }
  Fields& Skip(size_t num_bytes) {
    rest_.remove_prefix(num_bytes);
    return *this;
  }
  size_t size() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

absl::Status Refuse(std::string_view why) { return absl::InvalidArgumentError(absl::StrCat("zip archive: ", why)); }

absl::Status RefuseEntry(std::string_view name, std::string_view why) {
  return Refuse(absl::StrCat("entry ", Quoted(name), " ", why));
}

absl::StatusOr<std::string> ReadRecord(const RandomAccessFile& file, int64_t offset, int64_t num_bytes) {
  std::string record(static_cast<size_t>(num_bytes), '\0');
  ABSL_RETURN_IF_ERROR(file.Read(offset, num_bytes, record.data()));
  return record;
}

// Where the central directory is.
struct DirectoryPlace {
  uint64_t num_entries = 0;
  uint64_t num_bytes = 0;
  uint64_t offset = 0;
};

// The numbers of the zip64 end record, which stands with its locator before `end_offset`; `place` holds those of the
// end record, each of them the same or too small for it.
absl::StatusOr<DirectoryPlace> ReadZip64End(const RandomAccessFile& file, int64_t end_offset, DirectoryPlace place) {
  const int64_t offset = end_offset - kZip64LocatorBytes - kZip64EndBytes;
  if (offset < 0) return Refuse("no zip64 end record stands before its locator");
  ABSL_ASSIGN_OR_RETURN(const std::string record, ReadRecord(file, offset, kZip64EndBytes + kZip64LocatorBytes));
  Fields fields(record);
  DirectoryPlace wide;
  const bool is_record = fields.U32() == kZip64End && fields.U64() == kZip64EndBytes - 12;
  const uint64_t disks = fields.Skip(4).U64();  // two numbers
  const uint64_t entries_here = fields.U64();
  wide.num_entries = fields.U64();
  wide.num_bytes = fields.U64();
  wide.offset = fields.U64();
  const bool is_located = fields.Skip(4).U32() == 0 && fields.U64() == static_cast<uint64_t>(offset);
  if (!is_record || !is_located) return Refuse("no zip64 end record stands before its locator");
  if (disks != 0 || entries_here != wide.num_entries) return Refuse("it is a part of an archive in several files");
  const auto agree = [](uint64_t narrow, uint64_t wide, uint64_t max) { return narrow == wide || narrow == max; };
  if (!agree(place.num_entries, wide.num_entries, kMax16) || !agree(place.num_bytes, wide.num_bytes, kMax32) ||
      !agree(place.offset, wide.offset, kMax32)) {
    return Refuse("its two end records contradict each other");
  }
  return wide;
}

absl::StatusOr<DirectoryPlace> FindDirectory(const RandomAccessFile& file) {
  int64_t end = file.num_bytes() - kEndBytes;
  if (end < 0) return absl::DataLossError(absl::StrCat("zip archive: cut after ", file.num_bytes(), " bytes"));
  ABSL_ASSIGN_OR_RETURN(const std::string record, ReadRecord(file, end, kEndBytes));
  Fields fields(record);
  if (fields.U32() != kEnd) {
    return absl::DataLossError(
        "zip archive: it does not end with the end record of its directory: the file was cut, or something was "
        "appended to it");
  }
  const uint32_t disks = fields.U32();  // two numbers
  const uint16_t entries_here = fields.U16();
  DirectoryPlace place{.num_entries = fields.U16(), .num_bytes = fields.U32(), .offset = fields.U32()};
  if (disks != 0 || entries_here != place.num_entries) return Refuse("it is a part of an archive in several files");
  if (fields.U16() != 0) return Refuse("it has a comment, of which nothing is there");

  if (end >= kZip64LocatorBytes) {
    ABSL_ASSIGN_OR_RETURN(const std::string locator, ReadRecord(file, end - kZip64LocatorBytes, 4));
    if (LittleEndian(locator) == kZip64Locator) {
      ABSL_ASSIGN_OR_RETURN(place, ReadZip64End(file, end, place));
      end -= kZip64LocatorBytes + kZip64EndBytes;
    }
  }
  const uint64_t limit = static_cast<uint64_t>(end);
  if (place.num_bytes > limit || place.offset != limit - place.num_bytes) {
    return Refuse(absl::StrCat("its directory is said to be ", place.num_bytes, " bytes at ", place.offset,
                               ", which is not what precedes its end record at ", end));
  }
  // Each has a local header as well.
  const uint64_t most = std::min(place.num_bytes / kDirectoryEntryBytes, place.offset / kLocalHeaderBytes);
  if (place.num_entries > most || place.num_entries > std::numeric_limits<uint32_t>::max()) {
    return Refuse(absl::StrCat("it is said to hold ", place.num_entries, " entries, for which it has no room"));
  }
  return place;
}

// The numbers of an entry that may stand in a zip64 field.
struct Numbers {
  uint64_t num_bytes = 0;
  uint64_t num_compressed = 0;
  uint64_t header_offset = 0;
};

// Replaces what is too large for 32 bits by what the entry's extra fields say.
absl::Status ReadZip64Field(std::string_view name, std::string_view extra, Numbers& numbers) {
  std::string_view values;
  for (Fields fields(extra); fields.size() >= 4;) {
    const uint16_t id = fields.U16();
    const uint16_t size = fields.U16();
    if (size > fields.size()) return RefuseEntry(name, "has extra fields that are cut");
    const std::string_view contents = fields.Bytes(size);
    if (id == kZip64Field) values = contents;
  }
  Fields fields(values);
  for (uint64_t* number : {&numbers.num_bytes, &numbers.num_compressed, &numbers.header_offset}) {
    if (*number != kMax32) continue;
    if (fields.size() < 8) return RefuseEntry(name, "lacks its zip64 field");
    *number = fields.U64();
  }
  return absl::OkStatus();
}

absl::Status CheckFlags(std::string_view name, uint16_t flags) {
  if (flags & kEncrypted) return RefuseEntry(name, "is encrypted");
  if (flags & ~(kCrcFollows | kNameIsUtf8)) return RefuseEntry(name, absl::StrCat("has unknown flags ", flags));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ZipDirectory> ZipDirectory::Read(const RandomAccessFile& file) {
  ABSL_ASSIGN_OR_RETURN(const DirectoryPlace place, FindDirectory(file));
  ZipDirectory directory;
  directory.records_.resize(place.num_bytes);
  ABSL_RETURN_IF_ERROR(file.Read(place.offset, place.num_bytes, directory.records_.data()));
  ABSL_RETURN_IF_ERROR(directory.Parse(place.num_entries));
  ABSL_RETURN_IF_ERROR(directory.FindData(file, place.offset));
  ABSL_RETURN_IF_ERROR(directory.SortByName());
  return directory;
}

// Leaves in `offset` where the local header is.
absl::Status ZipDirectory::Parse(int64_t num_entries) {
  entries_.reserve(num_entries);
  Fields fields(std::string_view(records_.data(), records_.size()));
  for (int64_t i = 0; i < num_entries; ++i) {
    if (fields.size() < kDirectoryEntryBytes || fields.U32() != kDirectoryEntry) {
      return Refuse(absl::StrCat("its directory is broken at entry ", i, " of ", num_entries));
    }
    const uint16_t flags = fields.Skip(4).U16();
    const uint16_t method = fields.U16();
    const uint32_t crc32 = fields.Skip(4).U32();
    Numbers numbers;
    numbers.num_compressed = fields.U32();
    numbers.num_bytes = fields.U32();
    const uint16_t name_size = fields.U16();
    const uint16_t extra_size = fields.U16();
    const uint16_t comment_size = fields.U16();
    const uint16_t disk = fields.U16();
    numbers.header_offset = fields.Skip(6).U32();
    if (fields.size() < size_t{name_size} + extra_size + comment_size) {
      return Refuse(absl::StrCat("its directory is broken at entry ", i, " of ", num_entries));
    }
    const std::string_view name = fields.Bytes(name_size);
    const std::string_view extra = fields.Bytes(extra_size);
    fields.Skip(comment_size);
    ABSL_RETURN_IF_ERROR(CheckFlags(name, flags));
    ABSL_RETURN_IF_ERROR(ReadZip64Field(name, extra, numbers));
    constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
    const bool is_compressed = method != 0;
    if ((numbers.num_compressed != numbers.num_bytes && !is_compressed) || numbers.num_compressed > kMax ||
        numbers.header_offset > kMax) {
      return RefuseEntry(name, absl::StrCat("is said to be ", numbers.num_bytes, " bytes, stored as ",
                                            numbers.num_compressed, " at ", numbers.header_offset));
    }
    if (disk != 0) return RefuseEntry(name, "is in another file");
    entries_.push_back({.name = name,
                        .offset = static_cast<int64_t>(numbers.header_offset),
                        .num_bytes = static_cast<int64_t>(numbers.num_compressed),
                        .crc32 = crc32,
                        .is_compressed = is_compressed});
  }
  if (fields.size() != 0) return Refuse(absl::StrCat("its directory goes on after ", num_entries, " entries"));
  return absl::OkStatus();
}

// Turns every `offset` from that of the header into that of the data.
absl::Status ZipDirectory::FindData(const RandomAccessFile& file, int64_t directory_offset) {
  int64_t free_from = 0;
  std::string header;
  for (ZipEntry& entry : entries_) {
    const int64_t header_offset = entry.offset;
    if (header_offset < free_from) return RefuseEntry(entry.name, "overlaps the one before it");
    header.resize(kLocalHeaderBytes + entry.name.size());
    if (header_offset > directory_offset - static_cast<int64_t>(header.size())) {
      return RefuseEntry(entry.name, absl::StrCat("is said to begin at ", header_offset, ", outside of the archive"));
    }
    ABSL_RETURN_IF_ERROR(file.Read(header_offset, static_cast<int64_t>(header.size()), header.data()));
    Fields fields(header);
    const bool is_header = fields.U32() == kLocalHeader;
    const uint16_t flags = fields.Skip(2).U16();
    const uint16_t method = fields.U16();
    const uint32_t crc32 = fields.Skip(4).U32();
    const uint32_t num_compressed = fields.U32();
    const uint32_t num_bytes = fields.U32();
    const uint16_t name_size = fields.U16();
    const uint16_t extra_size = fields.U16();
    if (!is_header || name_size != entry.name.size() ||
        fields.Bytes(std::min<size_t>(name_size, fields.size())) != entry.name) {
      return RefuseEntry(entry.name, absl::StrCat("has no header at ", header_offset));
    }
    ABSL_RETURN_IF_ERROR(CheckFlags(entry.name, flags));
    // What follows the data may be left out here, as zero or (zip64) as all ones.
    const bool follows = (flags & kCrcFollows) != 0;
    const auto agrees = [&](uint32_t here, uint64_t there) {
      return here == std::min(there, kMax32) || here == kMax32 || (follows && here == 0);
    };
    if ((method != 0) != entry.is_compressed || !agrees(num_compressed, entry.num_bytes) ||
        !(agrees(num_bytes, entry.num_bytes) || entry.is_compressed) ||
        !(crc32 == entry.crc32 || (follows && crc32 == 0))) {
      return RefuseEntry(entry.name, "has a header that contradicts the directory");
    }
    entry.offset = header_offset + static_cast<int64_t>(header.size()) + extra_size;
    if (entry.offset > directory_offset || entry.num_bytes > directory_offset - entry.offset) {
      return RefuseEntry(entry.name, absl::StrCat("is said to be ", entry.num_bytes, " bytes at ", entry.offset,
                                                  ", beyond the directory at ", directory_offset));
    }
    free_from = entry.offset + entry.num_bytes;
  }
  return absl::OkStatus();
}

absl::Status ZipDirectory::SortByName() {
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), uint32_t{0});
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return entries_[a].name < entries_[b].name; });
  for (size_t i = 1; i < by_name_.size(); ++i) {
    const std::string_view name = entries_[by_name_[i]].name;
    if (name == entries_[by_name_[i - 1]].name) return Refuse(absl::StrCat("two entries are named ", Quoted(name)));
  }
  return absl::OkStatus();
}

const ZipEntry* ZipDirectory::Find(std::string_view name) const {
  const auto it = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, std::string_view wanted) { return entries_[i].name < wanted; });
  return it == by_name_.end() || entries_[*it].name != name ? nullptr : &entries_[*it];
}

int64_t ZipDirectory::num_bytes() const {
  return static_cast<int64_t>(records_.size() + entries_.size() * (sizeof(ZipEntry) + sizeof(uint32_t)));
}

}  // namespace cohort::internal
