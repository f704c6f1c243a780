#include "cohort/checkpoint/internal/zip_reader.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/test_archive.h"
#include "cohort/checkpoint/internal/zip_writer.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/checkpoint/testing/python.h"
#include "cohort/checkpoint/writable_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::cohort::testing::FreshDirectory;
using ::cohort::testing::ReadFile;
using ::cohort::testing::RunPython;
using ::testing::HasSubstr;

// Counts what is read of a file, which may claim to be longer than its contents; beyond them there are zeros.
class CountingFile : public RandomAccessFile {
 public:
  explicit CountingFile(std::string_view contents) : file_(MemoryAsFile(contents)) {}
  int64_t num_bytes() const override { return file_->num_bytes(); }
  absl::Status Read(int64_t offset, int64_t num_bytes, char* buffer) const override {
    num_read_ += num_bytes;
    return file_->Read(offset, num_bytes, buffer);
  }
  absl::StatusOr<std::shared_ptr<char>> Map() const override { return file_->Map(); }
  int64_t num_read() const { return num_read_; }

 private:
  std::unique_ptr<RandomAccessFile> file_;
  mutable int64_t num_read_ = 0;
};

absl::Status Read(std::string_view bytes) { return ZipDirectory::Read(*MemoryAsFile(bytes)).status(); }

// What every entry says, with its data: "name:data".
std::vector<std::string> Entries(std::string_view bytes) {
  const absl::StatusOr<ZipDirectory> directory = ZipDirectory::Read(*MemoryAsFile(bytes));
  EXPECT_THAT(directory, IsOk());
  std::vector<std::string> entries;
  if (!directory.ok()) return entries;
  for (const ZipEntry& entry : directory->entries()) {
    entries.push_back(absl::StrCat(entry.name, ":", bytes.substr(entry.offset, entry.num_bytes)));
    EXPECT_EQ(directory->Find(entry.name), &entry);
  }
  EXPECT_EQ(directory->Find("no such entry"), nullptr);
  return entries;
}

// The archive that the tests below damage: local headers at 0 and `second`, directory records from `directory` on.
struct Sample {
  std::string bytes = ZipOf({{"a/one", "first"}, {"a/two", "second"}});
  size_t second = bytes.find("PK\x03\x04", 1);
  size_t directory = bytes.find("PK\x01\x02");
  size_t directory_second = bytes.find("PK\x01\x02", directory + 1);
  size_t end = bytes.size() - 22;

  // With `number` written at `offset`, lowest byte first.
  std::string With(size_t offset, uint64_t number, int num_bytes) const {
    std::string changed = bytes;
    for (int i = 0; i < num_bytes; ++i) changed[offset + i] = static_cast<char>(number >> (8 * i));
    return changed;
  }
};

TEST(ZipReaderTest, ReadsWhatZipWriterWrites) {
  EXPECT_THAT(Entries(Sample().bytes), ::testing::ElementsAre("a/one:first", "a/two:second"));
  EXPECT_THAT(Entries(ZipOf({})), ::testing::IsEmpty());
  EXPECT_THAT(Entries(ZipOf({{"empty", ""}})), ::testing::ElementsAre("empty:"));
}

TEST(ZipReaderTest, ReadsWhatPythonWrites) {
  const std::string path = FreshDirectory() + "/a.zip";
  RunPython(R"(
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("x/data.pkl", b"pickle")
    with z.open(zipfile.ZipInfo("x/data/0"), "w", force_zip64=True) as f:
        f.write(b"0123")
    z.writestr("x/\u2603", b"snow")
)",
            {path});
  EXPECT_THAT(Entries(ReadFile(path)), ::testing::ElementsAre("x/data.pkl:pickle", "x/data/0:0123", "x/☃:snow"));
}

TEST(ZipReaderTest, SaysWhichEntriesAreCompressed) {
  const std::string path = FreshDirectory() + "/a.zip";
  RunPython(R"(
import sys, zipfile
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("plain", b"a" * 1000)
    z.writestr("packed", b"a" * 1000, zipfile.ZIP_DEFLATED)
)",
            {path});
  const std::string bytes = ReadFile(path);
  const absl::StatusOr<ZipDirectory> directory = ZipDirectory::Read(*MemoryAsFile(bytes));
  ASSERT_THAT(directory, IsOk());
  EXPECT_FALSE(directory->Find("plain")->is_compressed);
  EXPECT_TRUE(directory->Find("packed")->is_compressed);
  EXPECT_LT(directory->Find("packed")->num_bytes, 1000);
}

TEST(ZipReaderTest, ReadsMoreEntriesThan16BitsCount) {
  std::vector<std::pair<std::string, std::string>> entries;
  for (int i = 0; i < 70000; ++i) entries.emplace_back(absl::StrCat(i), absl::StrCat(i));
  const std::string bytes = ZipOf(entries);
  const absl::StatusOr<ZipDirectory> directory = ZipDirectory::Read(*MemoryAsFile(bytes));
  ASSERT_THAT(directory, IsOk());
  ASSERT_EQ(directory->entries().size(), 70000u);
  const ZipEntry* entry = directory->Find("69999");
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(bytes.substr(entry->offset, entry->num_bytes), "69999");
  EXPECT_LT(directory->num_bytes(), static_cast<int64_t>(bytes.size()));
}

TEST(ZipReaderTest, ReadsNoData) {
  const std::string bytes = ZipOf({{"a", std::string(10'000'000, 'x')}, {"b", "y"}});
  const CountingFile file(bytes);
  ASSERT_THAT(ZipDirectory::Read(file), IsOk());
  EXPECT_LT(file.num_read(), 400);
}

// Zeros between what ZipWriter writes around an entry beyond 4 GiB.
class SparseFile final : public WritableFile, public RandomAccessFile {
 public:
  absl::Status Append(std::string_view bytes) override {
    if (bytes.size() < 200000) pieces_[size_] = bytes;
    size_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t, std::string_view) override { return absl::UnimplementedError("not in zip files"); }
  int64_t num_bytes() const override { return size_; }
  absl::Status Read(int64_t offset, int64_t num_bytes, char* buffer) const override {
    for (int64_t i = 0; i < num_bytes; ++i) {
      const auto it = --pieces_.upper_bound(offset + i);
      const size_t place = offset + i - it->first;
      buffer[i] = place < it->second.size() ? it->second[place] : '\0';
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::shared_ptr<char>> Map() const override { return absl::UnimplementedError("no memory"); }

 private:
  std::map<int64_t, std::string> pieces_;
  int64_t size_ = 0;
};

TEST(ZipReaderTest, ReadsEntriesBeyond4GiB) {
  constexpr int64_t kBig = (int64_t{4} << 30) + 5;
  SparseFile file;
  ZipWriter zip(file);
  ASSERT_THAT(zip.AddEntry("before", "b"), IsOk());
  ASSERT_THAT(zip.BeginEntry("big", kBig), IsOk());
  const std::string zeros(int64_t{256} << 10, '\0');
  for (int i = 0; i < 16384; ++i) ASSERT_THAT(zip.Append(zeros), IsOk());
  ASSERT_THAT(zip.Append("end.."), IsOk());
  ASSERT_THAT(zip.EndEntry(), IsOk());
  ASSERT_THAT(zip.AddEntry("after", "after"), IsOk());
  ASSERT_THAT(zip.Finish(), IsOk());

  const absl::StatusOr<ZipDirectory> directory = ZipDirectory::Read(file);
  ASSERT_THAT(directory, IsOk());
  const ZipEntry* big = directory->Find("big");
  const ZipEntry* after = directory->Find("after");
  ASSERT_TRUE(big != nullptr && after != nullptr);
  EXPECT_EQ(big->num_bytes, kBig);
  EXPECT_GT(after->offset, big->offset + kBig);
  char text[5];
  ASSERT_THAT(file.Read(big->offset + kBig - 5, 5, text), IsOk());
  EXPECT_EQ(std::string_view(text, 5), "end..");
  ASSERT_THAT(file.Read(after->offset, 5, text), IsOk());
  EXPECT_EQ(std::string_view(text, 5), "after");
}

// ---- What is refused ----

TEST(ZipReaderTest, RefusesAFileThatIsCutOrLonger) {
  const Sample sample;
  for (size_t size = 0; size < sample.bytes.size(); ++size) {
    EXPECT_THAT(Read(sample.bytes.substr(0, size)), StatusIs(absl::StatusCode::kDataLoss)) << size;
  }
  EXPECT_THAT(Read(sample.bytes + "x"), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("appended")));
  EXPECT_THAT(Read("x" + sample.bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("directory")));
}

TEST(ZipReaderTest, RefusesAComment) {
  const Sample sample;
  EXPECT_THAT(Read(sample.With(sample.end + 20, 5, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("comment")));
}

TEST(ZipReaderTest, RefusesMoreEntriesThanThereIsRoomFor) {
  const Sample sample;
  std::string bytes = sample.With(sample.end + 8, 0xfffe, 2);
  bytes.replace(sample.end + 10, 2, "\xfe\xff");
  EXPECT_THAT(Read(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no room")));
}

TEST(ZipReaderTest, RefusesNumbersThatPointOutsideOfTheFile) {
  const Sample sample;
  for (const std::string& bytes : {
           sample.With(sample.end + 12, 0xffffff00, 4),        // size of the directory
           sample.With(sample.end + 16, 0xffffff00, 4),        // where it begins
           sample.With(sample.directory + 42, 0xffffff00, 4),  // where an entry begins
           sample.With(sample.directory_second + 42, sample.directory - 10, 4),
           sample.With(sample.directory + 20, 0x10, 4),          // its size
           sample.With(sample.directory + 28, 0xffff, 2),        // of its name
           sample.With(sample.directory_second + 30, 0xffff, 2)  // of its extra fields
       }) {
    EXPECT_THAT(Read(bytes), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(ZipReaderTest, RefusesHostileZip64Numbers) {
  const Sample sample;
  for (uint64_t number : {uint64_t{0}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{1} << 63, uint64_t{4}}) {
    for (int field = 0; field < 4; ++field) {
      std::string record(56, '\0');
      record.replace(0, 5, "PK\x06\x06\x2c");
      const uint64_t right[] = {2, 2, sample.end - sample.directory, sample.directory};
      for (int f = 0; f < 4; ++f) {
        for (int i = 0; i < 8; ++i) {
          record[24 + 8 * f + i] = static_cast<char>((f == field ? number : right[f]) >> (8 * i));
        }
      }
      std::string locator("PK\x06\x07\0\0\0\0", 8);
      for (int i = 0; i < 8; ++i) locator.push_back(static_cast<char>(sample.end >> (8 * i)));
      locator.append(std::string("\x01\0\0\0", 4));
      std::string end = sample.bytes.substr(sample.end);
      end.replace(8, 12, 12, '\xff');  // all numbers are in the record
      EXPECT_THAT(Read(sample.bytes.substr(0, sample.end) + record + locator + end),
                  StatusIs(absl::StatusCode::kInvalidArgument))
          << field << " " << number;
      if (field == 0) {
        record.replace(24, 1, "\x02").replace(25, 7, 7, '\0');
        EXPECT_THAT(Read(sample.bytes.substr(0, sample.end) + record + locator + end), IsOk());
      }
    }
  }
}

TEST(ZipReaderTest, RefusesALocalHeaderThatContradictsTheDirectory) {
  const Sample sample;
  for (const std::string& bytes : {
           sample.With(sample.second, 'p', 1),      // signature
           sample.With(sample.second + 6, 0, 2),    // flags: the checksum is here, and it is another
           sample.With(sample.second + 8, 8, 2),    // method
           sample.With(sample.second + 14, 77, 4),  // checksum
           sample.With(sample.second + 18, 77, 4),  // sizes
           sample.With(sample.second + 22, 77, 4), sample.With(sample.second + 26, 4, 2),  // of the name
           sample.With(sample.second + 30, 'b', 1),                                        // name
       }) {
    EXPECT_THAT(Read(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a/two")));
  }
  EXPECT_THAT(Read(sample.With(sample.second + 28, 0xffff, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("beyond the directory")));
}

TEST(ZipReaderTest, RefusesEntriesThatOverlap) {
  const Sample sample;
  EXPECT_THAT(Read(sample.With(sample.directory_second + 42, 0, 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlaps")));
  // The first reaches into the second.
  std::string bytes = sample.With(sample.directory + 20, sample.second, 4);
  bytes.replace(sample.directory + 24, 4, bytes.substr(sample.directory + 20, 4));
  EXPECT_THAT(Read(bytes), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("overlaps")));
}

TEST(ZipReaderTest, RefusesOneNameTwice) {
  EXPECT_THAT(Read(ZipOf({{"a", "1"}, {"b", "2"}, {"a", "3"}})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("two entries are named \"a\"")));
}

TEST(ZipReaderTest, RefusesEncryptedEntriesAndUnknownFlags) {
  const Sample sample;
  EXPECT_THAT(Read(sample.With(sample.directory + 8, 9, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"a/one\" is encrypted")));
  EXPECT_THAT(Read(sample.With(sample.directory + 8, 0x2008, 2)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("unknown flags")));
}

}  // namespace
}  // namespace cohort::internal
