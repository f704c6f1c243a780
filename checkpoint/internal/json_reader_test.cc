#include "cohort/checkpoint/internal/json_reader.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/json_writer.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

// Writes down what it is told.
class Recorder : public JsonEvents {
 public:
  absl::Status Null() override { return Record("null"); }
  absl::Status Bool(bool value) override { return Record(value ? "true" : "false"); }
  absl::Status Int(int64_t value) override { return Record(absl::StrCat("int ", value)); }
  absl::Status Double(double value) override {
    last_double = value;
    return Record("double");
  }
  absl::Status String(std::string value) override {
    last_string = value;
    return Record(absl::StrCat("string ", value));
  }
  absl::Status Key(std::string key) override { return Record(absl::StrCat("key ", key)); }
  absl::Status BeginObject() override { return Record("{"); }
  absl::Status BeginArray() override { return Record("["); }
  absl::Status End() override { return Record("end"); }

  std::string text;
  double last_double = 0;
  std::string last_string;

 private:
  absl::Status Record(std::string_view event) {
    absl::StrAppend(&text, event, ";");
    return event == "string stop" ? absl::AbortedError("stopped") : absl::OkStatus();
  }
};

absl::Status Read(std::string_view json, Recorder& recorder) {
  MemoryBudget budget(static_cast<int64_t>(json.size()));
  return ReadJson(*MemoryAsFile(json), 0, static_cast<int64_t>(json.size()), budget, recorder);
}

absl::StatusOr<std::string> Events(std::string_view json) {
  Recorder recorder;
  const absl::Status status = Read(json, recorder);
  if (!status.ok()) return status;
  return recorder.text;
}

TEST(JsonReaderTest, TellsEveryValueInItsOrder) {
  EXPECT_THAT(Events(R"( {"a": [null, true, false, -7, "x\u00e9"], "b": {}, "a": 1} )"),
              IsOkAndHolds("{;key a;[;null;true;false;int -7;string xé;end;key b;{;end;key a;int 1;end;"));
}

TEST(JsonReaderTest, TellsTheSameOfATextInMemory) {
  for (const std::string_view text :
       {R"( {"a": [null, true, false, -7, "x\u00e9"], "b": {}, "a": 1} )", "[1.5, 1e3]", "[", "", "{\"a\" 1}",
        "[18446744073709551615]", "\"\xff\"", "[1] x", "1e999"}) {
    Recorder of_memory;
    const absl::Status status = ReadJson(text, of_memory);
    Recorder of_file;
    EXPECT_EQ(status, Read(text, of_file)) << text;
    EXPECT_EQ(of_memory.text, of_file.text) << text;
  }
  Recorder recorder;
  EXPECT_THAT(ReadJson(std::string_view("{}\0x", 4), recorder),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 2: a zero byte")));
}

TEST(JsonReaderTest, ReadsOnlyItsPartOfTheFile) {
  Recorder recorder;
  MemoryBudget budget(0);
  ASSERT_EQ(ReadJson(*MemoryAsFile("xx[1]yy"), 2, 3, budget, recorder), absl::OkStatus());
  EXPECT_EQ(recorder.text, "[;int 1;end;");
}

TEST(JsonReaderTest, RefusesWhatIsNotJson) {
  for (const std::string_view text : {"",
                                      " ",
                                      "{",
                                      "[1,]",
                                      "[1 2]",
                                      "{\"a\"}",
                                      "{a:1}",
                                      "[1]]",
                                      "[1] x",
                                      "nul",
                                      "01",
                                      "1.",
                                      "+1",
                                      "NaN",
                                      "Infinity",
                                      "\"\xff\"",
                                      "\"\xed\xa0\x80\"",
                                      "\"\n\"",
                                      "\"\\x\"",
                                      "\"\\ud800\"",
                                      "\"a",
                                      "// c\n1",
                                      "'a'",
                                      "1e999",
                                      "[\"a\\\""}) {
    EXPECT_THAT(Events(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not JSON"))) << text;
  }
}

TEST(JsonReaderTest, RefusesAZeroByteWhereverItStands) {
  EXPECT_THAT(Events(std::string_view("{}\0x", 4)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 2: a zero byte")));
  EXPECT_THAT(Events(std::string_view("\"\0\"", 3)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 1")));
}

TEST(JsonReaderTest, TellsIntegersExactlyOrNotAtAll) {
  EXPECT_THAT(Events("[9223372036854775807,-9223372036854775808]"),
              IsOkAndHolds("[;int 9223372036854775807;int -9223372036854775808;end;"));
  for (const std::string_view text : {"9223372036854775808", "-9223372036854775809", "18446744073709551616"}) {
    EXPECT_THAT(Events(text), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text))) << text;
  }
}

TEST(JsonReaderTest, ReturnsTheErrorOfItsListener) {
  Recorder recorder;
  EXPECT_THAT(Read(R"(["stop", 1])", recorder), StatusIs(absl::StatusCode::kAborted, "stopped"));
  EXPECT_EQ(recorder.text, "[;string stop;");
}

TEST(JsonReaderTest, ReadsStringsAcrossChunks) {
  for (const int length : {65533, 65534, 65535, 65536, 200000}) {
    const std::string value(length, 'x');
    Recorder recorder;
    ASSERT_EQ(Read(absl::StrCat("[\"", value, "\"]"), recorder), absl::OkStatus());
    EXPECT_EQ(recorder.last_string, value);
  }
}

TEST(JsonReaderTest, RefusesAStringWhoseCopiesAreBeyondTheBudget) {
  const int64_t length = MemoryBudget::kBeyondFile;
  Recorder recorder;
  MemoryBudget budget(length);
  const std::string text = absl::StrCat("\"", std::string(length, 'x'), "\"");
  EXPECT_THAT(ReadJson(*MemoryAsFile(text), 0, length + 2, budget, recorder),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("memory")));
  EXPECT_EQ(recorder.text, "");
}

TEST(JsonReaderTest, GivesBackWhatItCharged) {
  MemoryBudget budget(0);
  const std::string text = absl::StrCat("\"", std::string(7 << 20, 'x'), "\"");
  for (int i = 0; i < 2; ++i) {
    Recorder recorder;
    EXPECT_EQ(ReadJson(*MemoryAsFile(text), 0, static_cast<int64_t>(text.size()), budget, recorder), absl::OkStatus());
  }
  EXPECT_EQ(budget.Charge(MemoryBudget::kBeyondFile), absl::OkStatus());
}

TEST(JsonReaderTest, RefusesAnEndlessNumber) {
  EXPECT_THAT(Events(absl::StrCat("[", std::string(2000, '1'), "]")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a number or word of more than 1024 characters")));
}

TEST(JsonReaderTest, NestingTakesNoStack) {
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(Events(deep), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not JSON")));
}

TEST(JsonWriterTest, StringsReadBackAsTheSame) {
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  all += "é€😀";
  std::string json;
  AppendJsonString(all, json);
  Recorder recorder;
  ASSERT_EQ(Read(json, recorder), absl::OkStatus());
  EXPECT_EQ(recorder.last_string, all);
}

TEST(JsonWriterTest, DoublesReadBackAsTheSameBits) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20000; ++i) {
    constexpr double kSpecial[] = {0.0, -0.0, 1.0, 1e16, 1e22, 123456789.0, 5e-324, std::numeric_limits<double>::max()};
    uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, sizeof(value));
    if (i < 8) value = kSpecial[i];
    if (value - value != 0) continue;  // not finite
    std::string json;
    AppendJsonDouble(value, json);
    Recorder recorder;
    ASSERT_EQ(Read(json, recorder), absl::OkStatus());
    ASSERT_EQ(recorder.text, "double;") << json;
    ASSERT_EQ(std::memcmp(&value, &recorder.last_double, sizeof(value)), 0) << json;
  }
}

}  // namespace
}  // namespace cohort::internal
