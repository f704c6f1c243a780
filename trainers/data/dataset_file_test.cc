#include "cohort/trainers/data/dataset_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/ops/arange.h"
#include "ATen/ops/equal.h"
#include "ATen/ops/tensor.h"
#include "absl/base/config.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cohort/checkpoint/torch_file.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/row_source.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

namespace fs = std::filesystem;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// A file in memory.
class Text : public WritableFile {
 public:
  absl::Status Append(std::string_view bytes) override {
    text_.append(bytes);
    return absl::OkStatus();
  }
  absl::Status Overwrite(int64_t offset, std::string_view bytes) override {
    text_.replace(offset, bytes.size(), bytes);
    return absl::OkStatus();
  }
  int64_t num_bytes() const override { return static_cast<int64_t>(text_.size()); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string PathOf(std::string_view name) {
  const std::string folder =
      absl::StrCat(::testing::TempDir(), "/", ::testing::UnitTest::GetInstance()->current_test_info()->name());
  std::string path = absl::StrCat(folder, "/", name);
  fs::create_directories(fs::path(path).parent_path());
  return path;
}

std::string Write(std::string_view name, std::string_view contents) {
  const std::string path = PathOf(name);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << contents;
  return path;
}

std::unique_ptr<RowSource> Open(const std::string& path, const DatasetFileOptions& options = {}) {
  absl::StatusOr<std::unique_ptr<RowSource>> rows = OpenDatasetFile(path, options);
  ABSL_CHECK_OK(rows);
  return *std::move(rows);
}

RowBatch Read(const RowSource& source, const std::vector<int64_t>& rows) {
  absl::StatusOr<RowBatch> batch = source.Read(rows);
  ABSL_CHECK_OK(batch);
  return *std::move(batch);
}

// What WriteDatasetFile makes of rows 0 to num_rows - 1 with features {10 row, 10 row + 1} and the class `row`.
std::string OurFile(int64_t num_rows) {
  Dataset data = {.source = "made up", .feature_names = {"a", "b"}, .target_names = {"y"}, .num_rows = num_rows};
  for (int64_t row = 0; row < num_rows; ++row) {
    data.features.insert(data.features.end(), {10.0 * row, 10.0 * row + 1});
    data.targets.push_back(static_cast<double>(row));
  }
  absl::StatusOr<std::unique_ptr<RowSource>> rows = MakeDatasetRows(data, TargetKind::kClass);
  ABSL_CHECK_OK(rows);
  Text file;
  ABSL_CHECK_OK(WriteDatasetFile(**rows, file));
  return file.text();
}

// A safetensors file's length and header, as Python's library writes it: no checksums.
std::string Header(std::string json) {
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t size = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + json;
}

// One with these features, one byte a row, and targets that are all 0.
std::string TheirFile(std::string_view features) {
  return absl::StrCat(
      Header(absl::StrFormat(R"({"features":{"dtype":"U8","shape":[%d,1],"data_offsets":[0,%d]},)"
                             R"("targets":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}})",
                             features.size(), features.size(), features.size(), features.size(), 2 * features.size())),
      features, std::string(features.size(), '\0'));
}

// Of a file that is read, and of one that is mapped.
class DatasetFileTest : public ::testing::TestWithParam<bool> {
 protected:
  const DatasetFileOptions options_ = {.map = GetParam()};
};

INSTANTIATE_TEST_SUITE_P(, DatasetFileTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Mapped" : "Read"; });

TEST_P(DatasetFileTest, WhatWasWrittenComesBack) {
  const std::unique_ptr<RowSource> rows = Open(Write("ours", OurFile(100)), options_);
  EXPECT_EQ(rows->num_rows(), 100);
  EXPECT_EQ(rows->info().features, (RowFormat{.sizes = {2}, .dtype = at::kFloat}));
  EXPECT_EQ(rows->info().targets, (RowFormat{.sizes = {}, .dtype = at::kLong}));
  const RowBatch batch = Read(*rows, {99, 3, 4, 5, 0, 99});
  EXPECT_TRUE(
      at::equal(batch.features,
                at::tensor({990.f, 991.f, 30.f, 31.f, 40.f, 41.f, 50.f, 51.f, 0.f, 1.f, 990.f, 991.f}).view({6, 2})));
  EXPECT_TRUE(at::equal(batch.targets, at::tensor(std::vector<int64_t>{99, 3, 4, 5, 0, 99})));
}

TEST_P(DatasetFileTest, NoRowsAreTensorsOfNoRows) {
  const RowBatch batch = Read(*Open(Write("ours", OurFile(3)), options_), {});
  EXPECT_THAT(batch.features.sizes(), ElementsAre(0, 2));
  EXPECT_THAT(batch.targets.sizes(), ElementsAre(0));
}

TEST_P(DatasetFileTest, ARowThatIsNotThereIsRefused) {
  const std::unique_ptr<RowSource> rows = Open(Write("ours", OurFile(3)), options_);
  EXPECT_THAT(rows->Read({3}), StatusIs(kInvalid, HasSubstr("no row 3; there are 3")));
  EXPECT_THAT(rows->Read({-1}), StatusIs(kInvalid, HasSubstr("no row -1")));
}

TEST_P(DatasetFileTest, ABatchIsMemoryOfItsOwn) {
  const std::unique_ptr<RowSource> rows = Open(Write("ours", OurFile(3)), options_);
  Read(*rows, {0, 1, 2}).features.fill_(7);
  EXPECT_EQ(Read(*rows, {0}).features[0][1].item<float>(), 1);
}

// What follows an odd number of bytes is where no processor loads it from at once.
TEST_P(DatasetFileTest, ReadsWhatOthersWroteAlsoWhereItIsNotAligned) {
  std::string data = "xyz";
  for (const float value : {1.5f, 2.5f, 3.5f}) data.append(reinterpret_cast<const char*>(&value), sizeof(value));
  const std::string path = Write("theirs", Header(R"({"features":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                                                  R"("targets":{"dtype":"F32","shape":[3,1],"data_offsets":[3,15]}})") +
                                               data);
  const std::unique_ptr<RowSource> rows = Open(path, options_);
  EXPECT_EQ(rows->info().features, (RowFormat{.sizes = {}, .dtype = at::kByte}));
  const RowBatch batch = Read(*rows, {2, 0});
  EXPECT_TRUE(at::equal(batch.features, at::tensor({uint8_t{'z'}, uint8_t{'x'}}, at::kByte)));
  EXPECT_TRUE(at::equal(batch.targets, at::tensor({3.5f, 1.5f}).view({2, 1})));
}

TEST_P(DatasetFileTest, ATorchFileWillDo) {
  c10::impl::GenericDict dict(c10::StringType::get(), c10::TensorType::get());
  dict.insert("features", at::arange(6, at::kDouble).view({3, 2}));
  dict.insert("targets", at::arange(3, at::kLong));
  Text file;
  ABSL_ASSERT_OK(WriteTorchFile(c10::IValue(std::move(dict)), file));
  EXPECT_TRUE(at::equal(Read(*Open(Write("data.pt", file.text()), options_), {2}).features,
                        at::tensor({4.0, 5.0}).view({1, 2})));
}

// No machine has that much memory; nor is it on the disk, but for three rows.
TEST_P(DatasetFileTest, AFileLargerThanMemoryIsReadRowByRow) {
  constexpr int64_t kRows = int64_t{1} << 28, kRowBytes = 4096;  // 1 TiB
  const std::string header =
      Header(absl::StrFormat(R"({"features":{"dtype":"F32","shape":[%d,1024],"data_offsets":[0,%d]},)"
                             R"("targets":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}})",
                             kRows, kRows * kRowBytes, kRows, kRows * kRowBytes, kRows * (kRowBytes + 1)));
  const std::string path = Write("large", header);
  const auto begin = static_cast<int64_t>(header.size());
  ASSERT_EQ(truncate(path.c_str(), begin + kRows * (kRowBytes + 1)), 0);
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  for (const int64_t row : {int64_t{0}, kRows / 2, kRows - 1}) {
    const float value = static_cast<float>(row % 1000) + 0.5f;
    ASSERT_EQ(pwrite(fd, &value, sizeof(value), begin + row * kRowBytes), sizeof(value));
  }
  ASSERT_EQ(close(fd), 0);

  const std::unique_ptr<RowSource> rows = Open(path, options_);
  EXPECT_EQ(rows->num_rows(), kRows);
  const RowBatch batch = Read(*rows, {kRows - 1, 0, 12345, kRows / 2});
  EXPECT_THAT(std::vector<float>({batch.features[0][0].item<float>(), batch.features[1][0].item<float>(),
                                  batch.features[2][0].item<float>(), batch.features[3][0].item<float>()}),
              ElementsAre((kRows - 1) % 1000 + 0.5f, 0.5f, 0, kRows / 2 % 1000 + 0.5f));
  ASSERT_EQ(unlink(path.c_str()), 0);
}

// Sanitizers keep what was freed.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
// Memory of this process alone, in bytes: no page of a file.
int64_t OwnMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) << 10;
  }
  ABSL_CHECK(false) << "/proc/self/status says nothing of RssAnon";
  return 0;
}

TEST_P(DatasetFileTest, ARankHasMemoryForABatchAndNoMore) {
  constexpr int64_t kRows = 4096, kRowBytes = 16384;  // 64 MiB
  const std::string header =
      Header(absl::StrFormat(R"({"features":{"dtype":"F32","shape":[%d,4096],"data_offsets":[0,%d]},)"
                             R"("targets":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}})",
                             kRows, kRows * kRowBytes, kRows, kRows * kRowBytes, kRows * (kRowBytes + 1)));
  const std::string path = Write("64MiB", header + std::string(kRows * (kRowBytes + 1), 'x'));
  const std::unique_ptr<RowSource> rows = Open(path, options_);
  Read(*rows, {0});
  const int64_t before = OwnMemory();
  std::vector<int64_t> batch(16);
  for (int64_t row = 0; row < kRows; row += 16) {
    for (int64_t i = 0; i < 16; ++i) batch[i] = (row + i) * 5 % kRows;
    Read(*rows, batch);
  }
  EXPECT_LT(OwnMemory() - before, 16 * 16 * kRowBytes);

  // The measure measures: the whole set in memory is seen.
  std::vector<int64_t> all(kRows);
  std::iota(all.begin(), all.end(), 0);
  const RowBatch copy = Read(*rows, all);
  EXPECT_GT(OwnMemory() - before, kRows * kRowBytes / 2);
}
#endif

TEST(OpenDatasetFileTest, AFileThatIsCutWhileItIsUsedIsAnErrorOfTheBatch) {
  const std::string contents = TheirFile(std::string(100000, 'x'));
  const std::string path = Write("cut", contents);
  const std::unique_ptr<RowSource> rows = Open(path);
  ABSL_ASSERT_OK(rows->Read({99999}));
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(contents.size() - 150000)), 0);
  EXPECT_THAT(rows->Read({99999}),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(path), HasSubstr("bytes long when it was opened, and now ends at"))));
  ASSERT_EQ(truncate(path.c_str(), 0), 0);
  EXPECT_THAT(rows->Read({0}), StatusIs(absl::StatusCode::kDataLoss));
}

TEST_P(DatasetFileTest, AFileThatIsReplacedOrRemovedStaysOpen) {
  const std::string path = Write("data", TheirFile("abc"));
  const std::unique_ptr<RowSource> rows = Open(path, options_);
  fs::rename(Write("other", TheirFile("xyz")), path);
  EXPECT_EQ(Read(*rows, {1}).features.item<uint8_t>(), 'b');
  EXPECT_EQ(Read(*Open(path, options_), {1}).features.item<uint8_t>(), 'y');
  fs::remove(path);
  EXPECT_EQ(Read(*rows, {2}).features.item<uint8_t>(), 'c');
}

TEST(OpenDatasetFileTest, VerifyingFindsDamage) {
  std::string contents = OurFile(1000);
  contents[contents.size() - 3] ^= 1;
  const std::string path = Write("damaged", contents);
  ABSL_EXPECT_OK(OpenDatasetFile(path));
  EXPECT_THAT(OpenDatasetFile(path, {.verify = true}),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path), HasSubstr("the file is damaged"))));
  ABSL_EXPECT_OK(OpenDatasetFile(Write("good", OurFile(1000)), {.verify = true}));
}

// ---- The checksum ----

TEST(OpenDatasetFileTest, TheChecksumIsThatOfTheContents) {
  const uint32_t ours = Open(Write("a", OurFile(100)))->info().checksum;
  EXPECT_EQ(Open(Write("b", OurFile(100)))->info().checksum, ours);
  EXPECT_EQ(Open(Write("b", OurFile(100)), {.map = true})->info().checksum, ours);
  EXPECT_NE(Open(Write("c", OurFile(101)))->info().checksum, ours);
}

TEST(OpenDatasetFileTest, WithoutChecksumsRowsFromTheFirstToTheLastCount) {
  for (const size_t size : {size_t{10}, size_t{1024}, size_t{5000}}) {
    const std::string rows(size, 'x');
    const uint32_t checksum = Open(Write("data", TheirFile(rows)))->info().checksum;
    EXPECT_EQ(Open(Write("same", TheirFile(rows)))->info().checksum, checksum);
    for (const size_t place : {size_t{0}, size - 1}) {
      std::string other = rows;
      other[place] = 'y';
      EXPECT_NE(Open(Write("other", TheirFile(other)))->info().checksum, checksum) << size << ", " << place;
    }
    EXPECT_NE(Open(Write("more", TheirFile(rows + "x")))->info().checksum, checksum);
  }
}

TEST(OpenDatasetFileTest, WithoutChecksumsLargeRowsAreFewRows) {
  constexpr int64_t kRows = 1024, kRowBytes = int64_t{8} << 20;  // nothing of it is on the disk
  const auto checksum = [&](int64_t changed_row) {
    const std::string header =
        Header(absl::StrFormat(R"({"features":{"dtype":"U8","shape":[%d,%d],"data_offsets":[0,%d]},)"
                               R"("targets":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}})",
                               kRows, kRowBytes, kRows * kRowBytes, kRows, kRows * kRowBytes, kRows * (kRowBytes + 1)));
    const std::string path = Write("rows", header);
    ABSL_CHECK_EQ(truncate(path.c_str(), static_cast<int64_t>(header.size()) + kRows * (kRowBytes + 1)), 0);
    const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
    ABSL_CHECK_EQ(pwrite(fd, "x", 1, static_cast<int64_t>(header.size()) + changed_row * kRowBytes + 7), 1);
    ABSL_CHECK_EQ(close(fd), 0);
    return Open(path)->info().checksum;
  };
  const uint32_t first = checksum(0);
  EXPECT_NE(checksum(kRows - 1), first);
  EXPECT_EQ(checksum(1), checksum(2));  // of which neither is read
}

// ---- What is no data set ----

TEST(OpenDatasetFileTest, WhatIsMissingOrDoesNotFitIsNamed) {
  const auto expect_refused = [](std::string_view json, size_t num_bytes, absl::StatusCode code, std::string_view why) {
    const std::string path = Write("bad", Header(std::string(json)) + std::string(num_bytes, '\0'));
    EXPECT_THAT(OpenDatasetFile(path), StatusIs(code, AllOf(StartsWith(absl::StrCat("\"", path)), HasSubstr(why))));
  };
  expect_refused(R"({"x":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3, absl::StatusCode::kNotFound,
                 "a data set has a tensor \"features\"; this file has \"x\"");
  expect_refused(R"({"features":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3, absl::StatusCode::kNotFound,
                 "a tensor \"targets\"; this file has \"features\"");
  expect_refused("{}", 0, absl::StatusCode::kNotFound, "this file has none");
  const auto both = [](std::string_view features, size_t features_bytes, std::string_view targets,
                       size_t targets_bytes) {
    return absl::StrFormat(R"({"features":{"dtype":"U8","shape":[%s],"data_offsets":[0,%d]},)"
                           R"("targets":{"dtype":"U8","shape":[%s],"data_offsets":[%d,%d]}})",
                           features, features_bytes, targets, features_bytes, features_bytes + targets_bytes);
  };
  expect_refused(both("2,3", 6, "3", 3), 9, kInvalid,
                 "\"features\" has sizes [2, 3] and \"targets\" [3]; the first of "
                 "each must be the number of rows, the same and at least 1");
  expect_refused(both("0,3", 0, "0", 0), 0, kInvalid, "[0, 3]");
  expect_refused(both("", 1, "1", 1), 2, kInvalid, "\"features\" has sizes []");
  // A shape that the file does not hold, and one whose product is beyond 64 bits.
  expect_refused(both("1000000000000", 3, "3", 3), 6, kInvalid, "");
  expect_refused(both("4294967296,4294967296,4294967296", 3, "3", 3), 6, kInvalid, "");
}

TEST(OpenDatasetFileTest, WhatIsNoStateFileIsRefused) {
  EXPECT_THAT(OpenDatasetFile(PathOf("absent")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  EXPECT_THAT(OpenDatasetFile(::testing::TempDir()), StatusIs(kInvalid, HasSubstr("a directory")));
  EXPECT_FALSE(OpenDatasetFile(Write("empty", "")).ok());
  EXPECT_FALSE(OpenDatasetFile(Write("csv", "a,b,y\n1,2,3\n")).ok());
}

}  // namespace
}  // namespace cohort
