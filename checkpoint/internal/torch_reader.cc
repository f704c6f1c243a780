// The records, all in one folder of any name (torch.save takes the file's):
//
//   NAME/data.pkl       the pickle
//   NAME/byteorder      "little"; torch.save before 2.1 wrote none, and was little-endian where cohort runs
//   NAME/data/KEY       the bytes of a storage
//   NAME/version        "3\n", say
//
// Others (.format_version, .storage_alignment, .data/serialization_id) say nothing that a reader needs.

#include "cohort/checkpoint/internal/torch_reader.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/pickle_reader.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/internal/zip_reader.h"

namespace cohort::internal {
namespace {

constexpr int64_t kMemoryBytes = int64_t{48} << 20;
constexpr int64_t kMaxSmallRecordBytes = 100;
constexpr int kMaxVersion = 10;  // LibTorch's kMaxSupportedFileFormatVersion

absl::Status Refuse(std::string_view why) { return absl::InvalidArgumentError(why); }

// What the file is, if it is not a zip archive. `head` is its beginning, of at least 512 bytes if it has as many.
absl::Status RefuseKind(std::string_view head, int64_t file_bytes) {
  constexpr std::string_view kLegacyMagic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  constexpr std::string_view kConvert =
      "in Python, torch.save(torch.load(OLD, weights_only=True), NEW) makes a file that can be read";
  if (head.empty()) return Refuse("it is empty, not a .pt file");
  // After the pickle's protocol and, from protocol 4 on, the length of its frame.
  const auto is_magic_at = [&](size_t at) { return head.size() > at && absl::StartsWith(head.substr(at), kLegacyMagic); };
  // The same number in digits, of protocols 0 and 1.
  const bool is_in_digits = absl::StartsWith(head, "L119547037146038801333356L\n");
  if (is_magic_at(0) || is_magic_at(2) || is_magic_at(11) || is_in_digits) {
    return Refuse(absl::StrCat("it is a .pt file of the format before PyTorch 1.6; ", kConvert));
  }
  if (head.size() > 262 && head.substr(257, 5) == "ustar") {
    return Refuse(absl::StrCat("it is a tar archive, as .pt files before PyTorch 0.2 are; ", kConvert));
  }
  if (head[0] == '\x80') {
    return Refuse(
        "it is a bare pickle, not written by torch.save; in Python, load it and torch.save a dict of tensors");
  }
  uint64_t json_bytes = 0;
  for (size_t i = 8; i-- > 0 && head.size() > 8;) json_bytes = json_bytes << 8 | static_cast<uint8_t>(head[i]);
  if (head.size() > 8 && head[8] == '{' && json_bytes <= static_cast<uint64_t>(file_bytes)) {
    return Refuse("it is a safetensors file, not a .pt file");
  }
  return Refuse("it is not a .pt file: it does not begin as a zip archive");
}

class TorchFile {
 public:
  explicit TorchFile(const RandomAccessFile& file) : file_(file) {}

  absl::StatusOr<StoredState> Read() {
    ABSL_RETURN_IF_ERROR(CheckBeginning());
    ABSL_ASSIGN_OR_RETURN(directory_, ZipDirectory::Read(file_));
    ABSL_RETURN_IF_ERROR(CheckArchive());
    ABSL_RETURN_IF_ERROR(FindFolder());
    ABSL_RETURN_IF_ERROR(CheckSmallRecords());
    return ReadState();
  }

 private:
  absl::Status CheckBeginning() const {
    std::string head(static_cast<size_t>(std::min<int64_t>(file_.num_bytes(), 512)), '\0');
    ABSL_RETURN_IF_ERROR(file_.Read(0, static_cast<int64_t>(head.size()), head.data()));
    if (absl::StartsWith(head, "PK\x03\x04")) return absl::OkStatus();
    if (absl::StartsWith(head, "PK\x05\x06")) return Refuse("it is an empty zip archive, not a .pt file");
    return RefuseKind(head, file_.num_bytes());
  }

  absl::Status CheckArchive() const {
    for (const ZipEntry& entry : directory_->entries()) {
      if (absl::EndsWith(entry.name, "/constants.pkl") || absl::StrContains(entry.name, "/code/")) {
        return Refuse(
            "it is a TorchScript archive, not a file of torch.save; in Python, "
            "torch.save(torch.jit.load(OLD).state_dict(), NEW) makes one");
      }
      if (absl::EndsWith(entry.name, "/archive_format")) {
        return Refuse(
            "it is an exported program, not a file of torch.save; in Python, "
            "torch.save(dict(torch.export.load(OLD).state_dict), NEW) makes one");
      }
    }
    for (const ZipEntry& entry : directory_->entries()) {
      if (entry.is_compressed) {
        return Refuse(absl::StrCat("entry ", Quoted(entry.name),
                                   " is compressed; torch.save stores entries as they are. Was the file packed anew?"));
      }
      if (absl::EndsWith(entry.name, "/")) {
        return Refuse(absl::StrCat("entry ", Quoted(entry.name),
                                   " is a folder; torch.save writes only files. Was the file packed anew?"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status FindFolder() {
    for (const ZipEntry& entry : directory_->entries()) {
      if (!absl::EndsWith(entry.name, "/data.pkl")) continue;
      const std::string_view folder = entry.name.substr(0, entry.name.size() - 8);
      if (std::count(folder.begin(), folder.end(), '/') != 1) continue;
      if (!folder_.empty()) {
        return Refuse(absl::StrCat("it holds two pickles, in ", Quoted(folder_), " and ", Quoted(folder)));
      }
      folder_ = folder;
    }
    if (!folder_.empty()) return absl::OkStatus();
    return Refuse(absl::StrCat("it is a zip archive of another kind: none of its ", directory_->entries().size(),
                               " entries is data.pkl in a folder"));
  }

  const ZipEntry* Find(std::string_view name) const { return directory_->Find(absl::StrCat(folder_, name)); }

  absl::StatusOr<std::string> ReadRecord(const ZipEntry& entry) const {
    std::string contents(static_cast<size_t>(entry.num_bytes), '\0');
    ABSL_RETURN_IF_ERROR(file_.Read(entry.offset, entry.num_bytes, contents.data()));
    const uint32_t crc32 = Crc32(contents);
    if (crc32 == entry.crc32 || entry.crc32 == 0) return contents;
    return absl::DataLossError(absl::StrFormat("entry %s is damaged: its checksum is %08x, and should be %08x",
                                               Quoted(entry.name), crc32, entry.crc32));
  }

  // nullopt: it is not there.
  absl::StatusOr<std::optional<std::string>> ReadSmallRecord(std::string_view name) const {
    const ZipEntry* entry = Find(name);
    if (entry == nullptr) return std::nullopt;
    if (entry->num_bytes > kMaxSmallRecordBytes) {
      return Refuse(absl::StrCat("entry ", Quoted(entry->name), " has ", entry->num_bytes, " bytes; at most ",
                                 kMaxSmallRecordBytes, " are allowed"));
    }
    return ReadRecord(*entry);
  }

  absl::Status CheckSmallRecords() const {
    ABSL_ASSIGN_OR_RETURN(const std::optional<std::string> order, ReadSmallRecord("byteorder"));
    if (order == "big") {
      return Refuse(
          "its numbers are big-endian; in Python on a little-endian machine, torch.save(torch.load(OLD, "
          "weights_only=True), NEW) makes a file that can be read");
    }
    if (order.value_or("little") != "little") {
      return Refuse(absl::StrCat("its byte order is ", Quoted(*order), "; only \"little\" can be read"));
    }
    ABSL_ASSIGN_OR_RETURN(const std::optional<std::string> version, ReadSmallRecord("version"));
    int number;
    if (!absl::SimpleAtoi(version.value_or(""), &number) || number < 1 || number > kMaxVersion) {
      return Refuse(absl::StrCat("its version is ", version.has_value() ? Quoted(*version) : "missing", "; 1 to ",
                                 kMaxVersion, " can be read"));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<StoredBytes> FindStorage(std::string_view key, int64_t num_bytes) const {
    const ZipEntry* entry = Find(absl::StrCat("data/", key));
    if (entry == nullptr) return Refuse(absl::StrCat("storage ", Quoted(key), " is missing from the file"));
    if (entry->num_bytes != num_bytes) {
      return Refuse(absl::StrCat("entry ", Quoted(entry->name), " has ", entry->num_bytes,
                                 " bytes, and the pickle says that storage ", Quoted(key), " has ", num_bytes));
    }
    StoredBytes bytes{.begin = entry->offset, .num_bytes = num_bytes};
    if (entry->crc32 != 0 || num_bytes == 0) bytes.crc32 = entry->crc32;
    return bytes;
  }

  absl::StatusOr<StoredState> ReadState() const {
    const ZipEntry& entry = *Find("data.pkl");
    // Both fit the file, whose entries take more than what the directory keeps of them.
    const int64_t memory =
        kMemoryBytes + std::max<int64_t>(file_.num_bytes() - entry.num_bytes - directory_->num_bytes(), 0);
    ABSL_ASSIGN_OR_RETURN(const std::string pickle, ReadRecord(entry));
    absl::StatusOr<StoredState> state = ReadPickle(
        pickle, memory, [this](std::string_view key, int64_t num_bytes) { return FindStorage(key, num_bytes); });
    if (state.ok()) return state;
    return absl::Status(state.status().code(),
                        absl::StrCat("entry ", Quoted(entry.name), ": ", state.status().message()));
  }

  const RandomAccessFile& file_;
  std::optional<ZipDirectory> directory_;
  std::string_view folder_;  // with the slash
};

}  // namespace

absl::StatusOr<StoredState> ReadTorchState(const RandomAccessFile& file) { return TorchFile(file).Read(); }

}  // namespace cohort::internal
