#include "cohort/checkpoint/internal/safetensors_reader.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"
#include "cohort/checkpoint/internal/state_tree.h"
#include "cohort/checkpoint/testing/files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::StatusIs;
using ::cohort::testing::ReadFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

std::string Length(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i));
  return bytes;
}

// A file with this header and so many bytes of data.
std::string File(std::string_view header, int data_bytes = 0) {
  return absl::StrCat(Length(header.size()), header, std::string(data_bytes, 'd'));
}

absl::StatusOr<SafetensorsFile> Read(std::string_view file) { return ReadSafetensors(*MemoryAsFile(file)); }

void ExpectRefused(std::string_view header, int data_bytes, std::string_view message) {
  EXPECT_THAT(Read(File(header, data_bytes)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
      << header;
}

// The header of one tensor with these fields.
std::string One(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return absl::StrCat(R"({"t":{"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets, "}}");
}

TEST(SafetensorsReaderTest, ReadsAFileOfOthers) {
  const absl::StatusOr<SafetensorsFile> file = Read(
      File(R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},"__metadata__":{"format":"pt","x":"\u00e9"},)"
           R"("a":{"data_offsets":[0,8],"shape":[],"dtype":"I64"}}   )",
           32));
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_THAT(file->metadata, ElementsAre(Pair("format", "pt"), Pair("x", "é")));
  EXPECT_EQ(file->state.tree, (StateTree{StateDict{{{"b", {TensorIndex{0}}}, {"a", {TensorIndex{1}}}}}}));
  ASSERT_EQ(file->state.tensors.size(), 2);
  const StoredTensor& b = file->state.tensors[0];
  EXPECT_EQ(b.dtype, Dtype::kFloat32);
  EXPECT_THAT(b.sizes, ElementsAre(2, 3));
  EXPECT_THAT(b.strides, ElementsAre(3, 1));
  EXPECT_EQ(b.offset, 0);
  EXPECT_EQ(b.storage, 0);
  EXPECT_EQ(file->state.tensors[1].dtype, Dtype::kInt64);
  EXPECT_THAT(file->state.tensors[1].sizes, ElementsAre());
  ASSERT_EQ(file->state.storages.size(), 2);
  const int64_t data = file->state.storages[1].begin;
  EXPECT_EQ(file->state.storages[0].begin, data + 8);
  EXPECT_EQ(file->state.storages[0].num_bytes, 24);
  EXPECT_EQ(file->state.storages[1].num_bytes, 8);
  EXPECT_EQ(file->state.storages[0].crc32, std::nullopt);
}

TEST(SafetensorsReaderTest, ReadsWhatPythonsLibraryWrites) {
  const std::string bytes = ReadFile(absl::StrCat(std::getenv("TEST_SRCDIR"), "/", std::getenv("TEST_WORKSPACE"),
                                                  "/checkpoint/internal/testdata/others.safetensors"));
  const absl::StatusOr<SafetensorsFile> file = Read(bytes);
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_THAT(file->metadata, UnorderedElementsAre(Pair("format", "pt"), Pair("note", "\u2603 \"\n")));
  const auto& items = std::get<StateDict>(file->state.tree.value).items;
  ASSERT_EQ(items.size(), 19 + 3);
  int num_dtypes = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const std::string& name = std::get<std::string>(items[i].key);
    ASSERT_EQ(items[i].value, StateTree{TensorIndex{i}});
    const StoredTensor& tensor = file->state.tensors[i];
    const StoredBytes& storage = file->state.storages[i];
    const std::string data = bytes.substr(storage.begin, storage.num_bytes);
    if (const std::optional<Dtype> dtype = DtypeOfName(name); dtype.has_value()) {
      ++num_dtypes;
      EXPECT_EQ(tensor.dtype, *dtype) << name;
      EXPECT_THAT(tensor.sizes, ElementsAre(2)) << name;
      for (size_t k = 0; k < data.size(); ++k) EXPECT_EQ(data[k], static_cast<char>(k)) << name;
    } else if (name == "scalar") {
      EXPECT_EQ(data, "abcd");
      EXPECT_THAT(tensor.sizes, ElementsAre());
    } else if (name == "empty") {
      EXPECT_THAT(tensor.sizes, ElementsAre(3, 0));
    } else {
      EXPECT_EQ(name, "\u00e9 \"\n");
      EXPECT_EQ(data, "wxyz");
    }
  }
  EXPECT_EQ(num_dtypes, 19);
}

TEST(SafetensorsReaderTest, ReadsFilesWithoutTensorsAndTensorsWithoutElements) {
  EXPECT_EQ(Read(File("{}")).status(), absl::OkStatus());
  EXPECT_EQ(Read(File(R"({"__metadata__":{}})")).status(), absl::OkStatus());
  const absl::StatusOr<SafetensorsFile> file = Read(File(R"({"f":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                         R"("e":{"dtype":"F64","shape":[4,0,2],"data_offsets":[0,0]},)"
                                                         R"("":{"dtype":"F64","shape":[0],"data_offsets":[1,1]}})",
                                                         1));
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_THAT(file->state.tensors[1].strides, ElementsAre(2, 2, 1));
}

TEST(SafetensorsReaderTest, KnowsTheFormatsDtypes) {
  const std::pair<const char*, int> kDtypes[] = {
      {"BOOL", 1},        {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1},
      {"F8_E5M2FNUZ", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},     {"BF16", 2},    {"I32", 4},     {"U32", 4},
      {"F32", 4},         {"C64", 8}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& [name, num_bytes] : kDtypes) {
    const std::string header = One(absl::StrCat("\"", name, "\""), "[1]", absl::StrCat("[0,", num_bytes, "]"));
    EXPECT_EQ(Read(File(header, num_bytes)).status(), absl::OkStatus()) << name;
  }
  for (const std::string_view name : {"F4", "F6_E2M3", "F6_E3M2", "f32", "", "F128"}) {
    ExpectRefused(One(absl::StrCat("\"", name, "\""), "[2]", "[0,1]"), 1, absl::StrCat("no dtype \"", name, "\""));
  }
}

TEST(SafetensorsReaderTest, RefusesWhatIsNoSafetensorsFile) {
  for (const std::string& file :
       {std::string(), std::string("{}"), std::string(9, '\0'), std::string("PK\3\4 and so on"), File("[]"),
        File(" {}"), Length(0) + "{}", Length(100'000'001) + "{}", Length(UINT64_MAX) + "{}",
        Length(uint64_t{1} << 63) + "{}"}) {
    EXPECT_THAT(Read(file), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no safetensors file")));
  }
}

TEST(SafetensorsReaderTest, SaysThatAFileIsCut) {
  const std::string file = File(One("\"F32\"", "[2]", "[0,8]"), 8);
  for (size_t size = 10; size < file.size(); ++size) {
    EXPECT_THAT(Read(std::string_view(file).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the file is cut")));
  }
}

TEST(SafetensorsReaderTest, RefusesHeadersThatAreNotAsTheFormatSays) {
  ExpectRefused("{x}", 0, "not JSON");
  ExpectRefused("{} x", 0, "not JSON");
  ExpectRefused(std::string_view("{}\0\0", 4), 0, "a zero byte");
  ExpectRefused(R"({"__metadata__":{"a":1}})", 0, R"(the metadata's "a" has to be a string, not an integer)");
  ExpectRefused(R"({"__metadata__":{"a":{}}})", 0, "has to be a string, not an object");
  ExpectRefused(R"({"__metadata__":[]})", 0, R"("__metadata__" has to be an object, not a list)");
  ExpectRefused(R"({"__metadata__":{},"__metadata__":{}})", 0, R"("__metadata__" occurs twice)");
  ExpectRefused(R"({"__metadata__":{"a":"","a":""}})", 0, R"(the metadata's "a" occurs twice)");
  ExpectRefused(R"({"t":3})", 0, R"(the tensor "t": its description has to be an object, not an integer)");
  ExpectRefused(R"({"t":{}})", 0, "has to have dtype, shape and data_offsets");
  ExpectRefused(R"({"t":{"dtype":"F32","shape":[]}})", 0, "has to have dtype, shape and data_offsets");
  ExpectRefused(R"({"t":{"dtype":"F32","dtype":"F32"}})", 0, "its dtype occurs twice");
  ExpectRefused(R"({"t":{"strides":[]}})", 0, R"(the field "strides")");
  ExpectRefused(One("4", "[1]", "[0,4]"), 4, "its dtype has to be a string, not an integer");
  ExpectRefused(One("\"F32\"", "1", "[0,4]"), 4, "its shape has to be a list of integers, not an integer");
  ExpectRefused(One("\"F32\"", "[[1]]", "[0,4]"), 4, "its shape has to be a list of integers, not a list");
  ExpectRefused(One("\"F32\"", "[1.0]", "[0,4]"), 4, "not a number with a fraction");
  ExpectRefused(One("\"F32\"", "[-1]", "[0,4]"), 4, "its shape: -1 is less than 0");
  ExpectRefused(One("\"F32\"", "[null]", "[0,4]"), 4, "not null");
  ExpectRefused(One("\"F32\"", "[1]", "[0]"), 4, "its data_offsets have to be two integers");
  ExpectRefused(One("\"F32\"", "[1]", "[0,4,8]"), 4, "its data_offsets have to be two integers");
  ExpectRefused(One("\"F32\"", "[1]", "[-4,0]"), 4, "its data_offsets: -4 is less than 0");
}

TEST(SafetensorsReaderTest, RefusesNumbersThatOverflow) {
  ExpectRefused(One("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "too large for any machine");
  ExpectRefused(One("\"F64\"", "[2305843009213693952]", "[0,0]"), 0, "too large for any machine");
  ExpectRefused(One("\"F32\"", "[0,4294967296,4294967296]", "[0,0]"), 0, "too large for any machine");
  ExpectRefused(One("\"F32\"", "[9223372036854775808]", "[0,0]"), 0, "64 bits");
  EXPECT_THAT(Read(File(One("\"U8\"", "[9223372036854775807]", "[0,9223372036854775807]"), 3)),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("cut")));
}

TEST(SafetensorsReaderTest, RefusesGapsOverlapsAndLengthsThatDoNotFit) {
  const auto two = [](std::string_view a, std::string_view b) {
    return absl::StrCat(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)", a,
                        R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)", b, "}}");
  };
  EXPECT_EQ(Read(File(two("[2,4]", "[0,2]"), 4)).status(), absl::OkStatus());
  ExpectRefused(two("[0,2]", "[3,5]"), 5,
                R"(the tensor "b": its data_offsets are 3 and 5, but the data before it end at 2: there is a gap)");
  ExpectRefused(two("[0,2]", "[1,3]"), 3, "they overlap");
  ExpectRefused(two("[0,2]", "[0,2]"), 2, "they overlap");
  ExpectRefused(two("[1,3]", "[3,5]"), 5, "there is a gap");
  ExpectRefused(two("[0,2]", "[4,2]"), 4, "which is less");
  ExpectRefused(two("[0,2]", "[2,5]"), 5, "its dtype and shape take 2 bytes");
  ExpectRefused(two("[0,2]", "[2,4]"), 5, "there are 1 bytes after the last tensor's data");
}

TEST(SafetensorsReaderTest, RefusesANameThatOccursTwice) {
  ExpectRefused(
      R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
      R"("\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
      0, R"(the tensor "a" occurs twice)");
}

// A file that says that it is ours, without tensors; `checksum` as it has to be, or not.
std::string Own(std::string_view fields) { return File(absl::StrCat(R"({"__metadata__":{)", fields, "}}")); }

TEST(SafetensorsReaderTest, OthersMayWriteAStateWithoutChecksums) {
  const auto file = Read(Own(R"("cohort.format":"1","cohort.state":"[1, {\"$tuple\": []}]")"));
  ASSERT_EQ(file.status(), absl::OkStatus());
  EXPECT_EQ(file->state.tree, (StateTree{StateList{{StateTree{int64_t{1}}, StateTree{StateTuple{}}}}}));
}

TEST(SafetensorsReaderTest, FilesOfOursHaveToHaveAllTheirFieldsRight) {
  HeaderChecksum checksum;
  checksum.AddMetadata("cohort.format", "1");
  checksum.EndMetadata();
  const std::string good = absl::StrCat(R"("cohort.format":"1","cohort.checksums":"","cohort.header_checksum":")",
                                        ChecksumDigits(checksum.With("")), "\"");
  ASSERT_EQ(Read(Own(good)).status(), absl::OkStatus());
  EXPECT_EQ(Read(Own(good))->metadata.size(), 0);

  const auto refused = [&](std::string_view from, std::string_view to, absl::StatusCode code,
                           std::string_view message) {
    EXPECT_THAT(Read(Own(absl::StrReplaceAll(good, {{from, to}}))), StatusIs(code, HasSubstr(message))) << to;
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  refused(R"("cohort.format":"1",)", "", kInvalid, "but not \"cohort.format\"");
  refused(R"("cohort.checksums":"",)", "", kInvalid, "checksums of cohort, but not \"cohort.checksums\"");
  refused(R"(,"cohort.header_checksum":)", R"(,"x":)", kInvalid, "but not \"cohort.header_checksum\"");
  refused(R"("cohort.format":"1")", R"("cohort.format":"2")", kInvalid, "\"cohort.format\" is \"2\"");
  refused(R"("cohort.checksums":"")", R"("cohort.checksums":"00000000")", kInvalid,
          "8 hexadecimal digits for each of 0");
  refused(R"("cohort.format":"1")", R"("cohort.format":"1","cohort.more":"")", kInvalid, "\"cohort.more\"");
  refused(R"("cohort.format":"1")", R"("cohort.format":"1","cohort.state":"null")", absl::StatusCode::kDataLoss,
          "damaged");
  refused(R"("cohort.format":"1")", R"("cohort.format":"1","x":"")", absl::StatusCode::kDataLoss, "damaged");
  refused(R"("cohort.format":"1",)", R"("cohort.state":"null",)", kInvalid, "but not \"cohort.format\"");
}

}  // namespace
}  // namespace cohort::internal
