#include "cohort/checkpoint/internal/zip_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
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
using ::cohort::testing::RunPython;

// A file on disk. Long runs of zeros become holes, so that an archive beyond 4 GiB costs no space.
class SparseFile final : public WritableFile {
 public:
  explicit SparseFile(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0600)) {
    ABSL_PCHECK(fd_ >= 0) << path;
  }
  ~SparseFile() override { close(fd_); }

  absl::Status Append(std::string_view bytes) override {
    const bool is_hole =
        bytes.size() > 4096 && bytes[0] == '\0' && memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
    if (!is_hole)
      ABSL_PCHECK(pwrite(fd_, bytes.data(), bytes.size(), num_bytes_) == static_cast<ssize_t>(bytes.size()));
    num_bytes_ += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t, std::string_view) override { return absl::UnimplementedError("not needed"); }
  int64_t num_bytes() const override { return num_bytes_; }

 private:
  const int fd_;
  int64_t num_bytes_ = 0;
};

class BrokenFile final : public WritableFile {
 public:
  absl::Status Append(std::string_view) override { return absl::ResourceExhaustedError("disk full"); }
  absl::Status Overwrite(int64_t, std::string_view) override { return absl::ResourceExhaustedError("disk full"); }
  int64_t num_bytes() const override { return 0; }
};

class ZipWriterTest : public ::testing::Test {
 protected:
  const std::string path_ = FreshDirectory() + "/a.zip";
  SparseFile file_{path_};
  ZipWriter zip_{file_};
};

TEST_F(ZipWriterTest, PythonReadsEveryEntryAndItsChecksum) {
  ASSERT_THAT(zip_.AddEntry("archive/data.pkl", "pickle"), IsOk());
  ASSERT_THAT(zip_.AddEntry("archive/empty", ""), IsOk());
  ASSERT_THAT(zip_.BeginEntry("archive/data/0", 1000001), IsOk());
  ASSERT_THAT(zip_.Append(std::string(1000000, 'x')), IsOk());
  ASSERT_THAT(zip_.Append("y"), IsOk());
  ASSERT_THAT(zip_.EndEntry(), IsOk());
  ASSERT_THAT(zip_.Finish(), IsOk());
  EXPECT_EQ(RunPython(R"(
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert z.testzip() is None, z.testzip()
for i in z.infolist():
    assert i.compress_type == zipfile.ZIP_STORED
    print(i.filename, i.file_size)
assert z.read("archive/data.pkl") == b"pickle"
assert z.read("archive/data/0") == b"x" * 1000000 + b"y"
)",
                      {path_}),
            "archive/data.pkl 6\narchive/empty 0\narchive/data/0 1000001\n");
}

TEST_F(ZipWriterTest, PythonSeesAChangedByte) {
  ASSERT_THAT(zip_.AddEntry("data", "abc"), IsOk());
  ASSERT_THAT(zip_.Finish(), IsOk());
  RunPython(R"(
import sys, zipfile
bytes = open(sys.argv[1], "rb").read()
open(sys.argv[1], "wb").write(bytes.replace(b"abc", b"abd"))
assert zipfile.ZipFile(sys.argv[1]).testzip() == "data"
)",
            {path_});
}

TEST_F(ZipWriterTest, AlignsEveryEntry) {
  for (int i = 0; i < 130; ++i) ASSERT_THAT(zip_.AddEntry(std::string(i + 1, 'n'), std::string(i, 'x')), IsOk());
  ASSERT_THAT(zip_.Finish(), IsOk());
  RunPython(R"(
import struct, sys, zipfile
z, f = zipfile.ZipFile(sys.argv[1]), open(sys.argv[1], "rb")
assert len(z.infolist()) == 130 and z.testzip() is None
for i in z.infolist():
    f.seek(i.header_offset + 26)
    name, extra = struct.unpack("<HH", f.read(4))
    assert (i.header_offset + 30 + name + extra) % 64 == 0, i
)",
            {path_});
}

TEST_F(ZipWriterTest, HoldsMoreEntriesThan16BitsCount) {
  for (int i = 0; i < 65536; ++i) ASSERT_THAT(zip_.AddEntry(absl::StrCat(i), "x"), IsOk());
  ASSERT_THAT(zip_.Finish(), IsOk());
  RunPython(R"(
import sys, zipfile
z = zipfile.ZipFile(sys.argv[1])
assert len(z.infolist()) == 65536 and z.read("65535") == b"x"
)",
            {path_});
}

TEST_F(ZipWriterTest, HoldsEntriesBeyond4GiB) {
  constexpr int64_t kBig = (int64_t{4} << 30) + 5;
  ASSERT_THAT(zip_.AddEntry("before", "b"), IsOk());
  ASSERT_THAT(zip_.BeginEntry("big", kBig), IsOk());
  const std::string zeros(int64_t{64} << 20, '\0');
  for (int i = 0; i < 64; ++i) ASSERT_THAT(zip_.Append(zeros), IsOk());
  ASSERT_THAT(zip_.Append("end.."), IsOk());
  ASSERT_THAT(zip_.EndEntry(), IsOk());
  ASSERT_THAT(zip_.AddEntry("after", "a"), IsOk());
  ASSERT_THAT(zip_.Finish(), IsOk());
  // Reading it all back would take as long again; the checksum code is the same as for small ones.
  RunPython(R"(
import struct, sys, zipfile
z, f = zipfile.ZipFile(sys.argv[1]), open(sys.argv[1], "rb")
assert z.read("before") == b"b" and z.read("after") == b"a"
big, after = z.getinfo("big"), z.getinfo("after")
assert big.file_size == big.compress_size == (4 << 30) + 5 and after.header_offset > 4 << 30
with z.open(big) as s:
    assert s.read(3) == b"\0\0\0"
for i in big, after:
    f.seek(i.header_offset + 26)
    name, extra = struct.unpack("<HH", f.read(4))
    begin = i.header_offset + 30 + name + extra
    assert begin % 64 == 0
    f.seek(begin + i.file_size)
    assert struct.unpack("<IIQQ", f.read(24)) == (0x08074b50, i.CRC, i.file_size, i.file_size)
)",
            {path_});
}

TEST(ZipWriterErrorTest, ReturnsTheFilesError) {
  BrokenFile file;
  ZipWriter zip(file);
  EXPECT_THAT(zip.AddEntry("name", "contents"), StatusIs(absl::StatusCode::kResourceExhausted, "disk full"));
}

}  // namespace
}  // namespace cohort::internal
