#include "cohort/checkpoint/internal/manifest.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/time/civil_time.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

CheckpointInfo Example() {
  CheckpointInfo info;
  info.step = 1200;
  info.sequence = 12;
  info.saved = absl::FromCivil(absl::CivilSecond(2026, 12, 2, 10), absl::UTCTimeZone()) + absl::Microseconds(123456);
  info.run_id = "7f3a";
  info.model = "5d1e0c22";
  info.world_size = 2;
  info.metrics = {{"bad", std::nan("")}, {"loss", 0.5}};
  info.files = {{.name = "state.pt", .num_bytes = 123, .crc32 = 0x0a1b2c3d}};
  return info;
}

// A manifest with these members and a checksum that is right.
std::string Sealed(std::string_view body) {
  return absl::StrFormat("%s,\n \"manifest_crc32\": \"%08x\"}\n", body, Crc32(body));
}

std::string BodyOf(std::string_view manifest) {
  return std::string(manifest.substr(0, manifest.find(",\n \"manifest_crc32\"")));
}

// The example's manifest with `from`, which must stand there, replaced by `to`.
std::string Changed(std::string_view from, std::string_view to) {
  const std::string body = BodyOf(EncodeManifest(Example()));
  const std::string changed = absl::StrReplaceAll(body, {{from, to}});
  EXPECT_NE(body, changed) << from;
  return Sealed(changed);
}

auto IsInvalid(std::string_view why) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(why)));
}
auto IsDamaged(std::string_view why) { return StatusIs(absl::StatusCode::kDataLoss, HasSubstr(std::string(why))); }

void ExpectEqual(const CheckpointInfo& a, const CheckpointInfo& b) {
  EXPECT_EQ(a.path, b.path);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.saved, b.saved);
  EXPECT_EQ(a.run_id, b.run_id);
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.world_size, b.world_size);
  EXPECT_EQ(a.pinned, b.pinned);
  ASSERT_EQ(a.metrics.size(), b.metrics.size());
  for (const auto& [name, value] : a.metrics) {
    ASSERT_TRUE(b.metrics.contains(name)) << name;
    const double other = b.metrics.at(name);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(other)) << name;
    } else {
      EXPECT_EQ(value, other) << name;
      EXPECT_EQ(std::signbit(value), std::signbit(other)) << name;
    }
  }
  ASSERT_EQ(a.files.size(), b.files.size());
  for (size_t i = 0; i < a.files.size(); ++i) {
    EXPECT_EQ(a.files[i].name, b.files[i].name);
    EXPECT_EQ(a.files[i].num_bytes, b.files[i].num_bytes);
    EXPECT_EQ(a.files[i].crc32, b.files[i].crc32);
  }
}

TEST(ManifestTest, IsThisText) {
  const std::string manifest = EncodeManifest(Example());
  EXPECT_EQ(BodyOf(manifest),
            "{\"version\": 1, \"run_id\": \"7f3a\", \"sequence\": 12, \"step\": 1200, "
            "\"saved\": \"2026-12-02T10:00:00.123456Z\", \"world_size\": 2,\n"
            " \"model\": \"5d1e0c22\", \"metrics\": {\"bad\": \"NaN\", \"loss\": 0.5}, "
            "\"files\": [{\"name\": \"state.pt\", \"bytes\": 123, \"crc32\": \"0a1b2c3d\"}]");
  EXPECT_EQ(manifest, Sealed(BodyOf(manifest)));
}

class RandomInfo {
 public:
  explicit RandomInfo(uint32_t seed) : random_(seed) {}

  CheckpointInfo Make() {
    CheckpointInfo info;
    info.step = Number(kMaxInt64);
    info.sequence = Number(kMaxInt64 - 1);
    info.saved = absl::FromUnixMicros(Number(253402300799999999));
    info.world_size = static_cast<int>(1 + Number(std::numeric_limits<int>::max() - 1));
    info.run_id = "r";
    for (int64_t size = Number(255); size > 0; --size) info.run_id += static_cast<char>(' ' + Number('~' - ' '));
    info.model = Text(200);
    for (int64_t size = Number(5); size > 0; --size) info.metrics[absl::StrCat(size, Text(60))] = Metric();
    int64_t rest = kMaxInt64;
    for (int64_t size = 1 + Number(5); size > 0; --size) {
      const int64_t num_bytes = Number(rest);
      rest -= num_bytes;
      info.files.push_back({.name = absl::StrReplaceAll(absl::StrCat(size, Text(60)), {{"/", "_"}}),
                            .num_bytes = num_bytes,
                            .crc32 = static_cast<uint32_t>(random_())});
    }
    return info;
  }

 private:
  // 0 to `most`; often an end, and of every length.
  int64_t Number(int64_t most) {
    switch (random_() % 8) {
      case 0:
        return 0;
      case 1:
        return most;
      case 2:
        return static_cast<int64_t>((random_() >> (1 + random_() % 62)) % (static_cast<uint64_t>(most) + 1));
      default:
        return std::uniform_int_distribution<int64_t>(0, most)(random_);
    }
  }

  // UTF-8 without control characters, with what JSON escapes.
  std::string Text(int64_t max_characters) {
    constexpr std::string_view kCharacters[] = {"a", "Z", "0", " ", "\"", "\\", "/", "~", "é", "€", "😀", "\u00a0"};
    std::string text;
    for (int64_t size = Number(max_characters); size > 0; --size) text += kCharacters[Number(11)];
    return text;
  }

  double Metric() {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double special[] = {std::nan(""), kInfinity, -kInfinity, 0.0, -0.0, 5e-324, 1e308, 3, -7};
    if (random_() % 2 == 0) return special[random_() % std::size(special)];
    return std::normal_distribution<double>(0, 1e6)(random_);
  }

  std::mt19937_64 random_;
};

TEST(ManifestTest, EverythingComesBack) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RandomInfo random(seed);
  for (int i = 0; i < 2000; ++i) {
    const CheckpointInfo info = random.Make();
    const std::string manifest = EncodeManifest(info);
    const absl::StatusOr<CheckpointInfo> decoded = DecodeManifest(manifest);
    ASSERT_THAT(decoded, IsOk()) << manifest;
    ExpectEqual(*decoded, info);
    ASSERT_EQ(EncodeManifest(*decoded), manifest);
  }
}

TEST(ManifestTest, AnyFlippedBitIsAnError) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RandomInfo random(seed);
  for (int i = 0; i < 5; ++i) {
    const std::string manifest = EncodeManifest(i == 0 ? Example() : random.Make());
    for (size_t bit = 0; bit < 8 * manifest.size(); ++bit) {
      std::string damaged = manifest;
      damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
      const absl::Status status = DecodeManifest(damaged).status();
      ASSERT_TRUE(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << bit << ": " << status << damaged;
    }
  }
}

TEST(ManifestTest, ACutOrLongerTextIsAnError) {
  const std::string manifest = EncodeManifest(Example());
  for (size_t size = 0; size < manifest.size(); ++size) {
    EXPECT_FALSE(DecodeManifest(manifest.substr(0, size)).ok()) << size;
  }
  EXPECT_THAT(DecodeManifest(manifest.substr(0, 200)), IsDamaged("does not end with its checksum"));
  EXPECT_THAT(DecodeManifest(manifest + "\n"), IsDamaged("does not end with its checksum"));
  EXPECT_THAT(DecodeManifest(manifest + manifest), IsDamaged("has the checksum"));
  EXPECT_THAT(DecodeManifest(std::string(manifest.size(), '\0')), IsInvalid("it begins with \"\\"));
  EXPECT_THAT(DecodeManifest(""), IsInvalid("it begins with \"\""));
}

TEST(ManifestTest, ADifferentCaseOfTheChecksumIsAnError) {
  // Otherwise one of the bits of "a" could be flipped.
  CheckpointInfo info = Example();
  std::string manifest;
  do {
    ++info.step;
    manifest = EncodeManifest(info);
  } while (manifest[manifest.size() - 4] < 'a');
  ASSERT_THAT(DecodeManifest(manifest), IsOk());
  manifest[manifest.size() - 4] ^= 0x20;
  EXPECT_THAT(DecodeManifest(manifest), IsDamaged(""));
}

TEST(ManifestTest, ALaterVersionIsRefusedByItsNumberWhateverElseItHas) {
  EXPECT_THAT(DecodeManifest("{\"version\": 2, something new"),
              IsInvalid("it is of version 2; this cohort reads version 1"));
  EXPECT_THAT(DecodeManifest("{\"version\": 123456789012345678, \"a\": 1}"), IsInvalid("version 123456789012345678;"));
  EXPECT_THAT(DecodeManifest("{\"version\": 0, \"a\": 1}"), IsInvalid("version 0"));
  for (const std::string_view text : {"{\"version\": 1", "{\"version\": -1,", "{\"version\": \"1\",", "{\"version\":1,",
                                      "{\"version\": 9999999999999999999,", "{\"versio\": 1,", "[1]", "\xff\n"}) {
    EXPECT_THAT(DecodeManifest(text), IsInvalid("it begins with")) << text;
  }
}

TEST(ManifestTest, TheChecksumIsComparedBeforeTheTextIsLookedAt) {
  std::string manifest = EncodeManifest(Example());
  manifest[30] = '\0';
  EXPECT_THAT(DecodeManifest(manifest), IsDamaged("it has the checksum"));
  EXPECT_THAT(DecodeManifest(Sealed("{\"version\": 1, nonsense")), IsInvalid("it is not JSON"));
  EXPECT_THAT(DecodeManifest(Sealed(std::string_view("{\"version\": 1, \0", 16))), IsInvalid("byte 15: a zero byte"));
}

TEST(ManifestTest, AHugeOneIsRefusedUnread) {
  EXPECT_THAT(DecodeManifest(std::string(kMaxManifestBytes + 1, 'x')),
              IsInvalid("it has 1048577 bytes; allowed are at most 1048576"));
  // The largest one is read.
  std::string body = BodyOf(EncodeManifest(Example()));
  body += ", \"more\": \"";
  body += std::string(kMaxManifestBytes - Sealed(body).size() - 1, 'x') + "\"";
  const std::string largest = Sealed(body);
  EXPECT_EQ(largest.size(), kMaxManifestBytes);
  EXPECT_THAT(DecodeManifest(largest), IsOk());
}

TEST(ManifestTest, EveryMemberMustBeThereOnce) {
  for (const std::string_view member :
       {"run_id", "sequence", "step", "saved", "world_size", "model", "metrics", "files"}) {
    EXPECT_THAT(DecodeManifest(Changed(absl::StrCat("\"", member, "\""), "\"other\"")),
                IsInvalid(absl::StrCat("there is no \"", member, "\"")));
  }
  for (const std::string_view member : {"name", "bytes", "crc32"}) {
    EXPECT_THAT(DecodeManifest(Changed(absl::StrCat("\"", member, "\""), "\"other\"")),
                IsInvalid(absl::StrCat("file 1: there is no \"", member, "\"")));
  }
  EXPECT_THAT(DecodeManifest(Changed("\"step\": 1200", "\"step\": 1200, \"step\": 1200")),
              IsInvalid("\"step\" stands there twice"));
  EXPECT_THAT(DecodeManifest(Changed("\"metrics\": {", "\"metrics\": {}, \"metrics\": {")),
              IsInvalid("\"metrics\" stands there twice"));
  EXPECT_THAT(DecodeManifest(Changed("\"bytes\": 123", "\"bytes\": 123, \"bytes\": 124")),
              IsInvalid("\"bytes\" stands there twice"));
  EXPECT_THAT(DecodeManifest(Changed("\"loss\": 0.5", "\"loss\": 0.5, \"bad\": 1")),
              IsInvalid("the metric \"bad\" stands there twice"));
  EXPECT_THAT(DecodeManifest(Changed("}]", "}, {\"name\": \"state.pt\", \"bytes\": 0, \"crc32\": \"00000000\"}]")),
              IsInvalid("the file \"state.pt\" stands there twice"));
}

TEST(ManifestTest, AnUnknownMemberIsPassedOver) {
  const std::string_view unknown =
      "\"new\": [{\"step\": \"x\", \"new\": 1}, [[]], null], \"newer\": {\"files\": {\"name\": 1}}, \"step\": 1200";
  const absl::StatusOr<CheckpointInfo> decoded = DecodeManifest(Changed("\"step\": 1200", unknown));
  ASSERT_THAT(decoded, IsOk());
  ExpectEqual(*decoded, Example());
  EXPECT_THAT(DecodeManifest(Changed("\"bytes\": 123", "\"sha\": {\"bytes\": []}, \"bytes\": 123")), IsOk());
}

TEST(ManifestTest, AMemberOfAnotherKindIsRefused) {
  const std::string_view members[] = {"\"run_id\": \"7f3a\"",
                                      "\"sequence\": 12",
                                      "\"step\": 1200",
                                      "\"saved\": \"2026-12-02T10:00:00.123456Z\"",
                                      "\"world_size\": 2",
                                      "\"model\": \"5d1e0c22\"",
                                      "\"metrics\": {\"bad\": \"NaN\", \"loss\": 0.5}",
                                      "\"files\": [{\"name\": \"state.pt\", \"bytes\": 123, \"crc32\": \"0a1b2c3d\"}]",
                                      "\"name\": \"state.pt\"",
                                      "\"bytes\": 123",
                                      "\"crc32\": \"0a1b2c3d\"",
                                      "\"loss\": 0.5"};
  for (const std::string_view member : members) {
    const std::string_view name = member.substr(0, member.find(':'));
    for (const std::string_view value : {"null", "true", "false", "{\"a\": 1}", "[1]"}) {
      if (name == "\"metrics\"" && value.front() == '{') continue;
      const std::string changed = Changed(member, absl::StrCat(name, ": ", value));
      if (name == "\"files\"" && value.front() == '[') {
        EXPECT_THAT(DecodeManifest(changed), IsInvalid("file 1 is 1; allowed is an object"));
        continue;
      }
      EXPECT_THAT(DecodeManifest(changed), IsInvalid("; allowed is ")) << changed;
      EXPECT_THAT(DecodeManifest(changed), IsInvalid(name)) << changed;
    }
    const bool is_number = member.back() >= '0' && member.back() <= '9';
    EXPECT_THAT(DecodeManifest(Changed(member, absl::StrCat(name, ": ", is_number ? "\"7\"" : "-7"))),
                IsInvalid("; allowed is "))
        << member;
  }
}

TEST(ManifestTest, SaysWhatIsWrongItsValueAndWhatIsAllowed) {
  const std::vector<std::pair<std::pair<std::string, std::string>, std::string>> cases = {
      {{"\"step\": 1200", "\"step\": -5"}, "\"step\" is -5; allowed is an integer from 0 to 9223372036854775807"},
      {{"\"step\": 1200", "\"step\": 1.5"}, "\"step\" is 1.5; allowed is an integer from 0"},
      {{"\"step\": 1200", "\"step\": 9223372036854775808"}, "9223372036854775808 does not fit"},
      {{"\"sequence\": 12", "\"sequence\": 9223372036854775807"}, "\"sequence\" is 9223372036854775807; allowed"},
      {{"\"world_size\": 2", "\"world_size\": 0"}, "\"world_size\" is 0; allowed is an integer from 1 to 2147483647"},
      {{"\"world_size\": 2", "\"world_size\": 2147483648"}, "\"world_size\" is 2147483648; allowed"},
      {{"2026-12-02T", "2026-13-02T"}, "\"saved\" is \"2026-13-02T10:00:00.123456Z\"; allowed is a time as"},
      {{"0a1b2c3d", "0A1B2C3D"}, "file 1: \"crc32\" is \"0A1B2C3D\"; allowed is eight hexadecimal digits"},
      {{"0a1b2c3d", "0x1b2c3d"}, "allowed is eight hexadecimal digits"},
      {{"\"bytes\": 123", "\"bytes\": -1"}, "file 1: \"bytes\" is -1; allowed is an integer from 0"},
      {{"7f3a", ""}, "the run id is \"\"; allowed is 1 to 256 printable ASCII characters"},
      {{"7f3a", "a\\nb"}, "the run id is \"a\\nb\"; allowed"},
      {{"7f3a", "é"}, "the run id is \"é\"; allowed"},
      {{"7f3a", std::string(257, 'r')}, "1 to 256 printable"},
      {{"5d1e0c22", "\\u007f"}, "; allowed is at most 1024 bytes of UTF-8 without control characters"},
      {{"5d1e0c22", std::string(1025, 'm')}, "at most 1024 bytes"},
      {{"\"NaN\"", "\"nan\""}, "the metric \"bad\" is \"nan\"; allowed is a number, \"NaN\", \"Infinity\""},
      {{"\"bad\"", "\"\""}, "the name of a metric is \"\"; allowed is 1 to 256 bytes"},
      {{"\"bad\"", "\"a\\tb\""}, "the name of a metric is \"a\\tb\"; allowed"},
      {{"\"bad\"", absl::StrCat("\"", std::string(257, 'm'), "\"")}, "1 to 256 bytes"},
      {{"[{\"name\": \"state.pt\", \"bytes\": 123, \"crc32\": \"0a1b2c3d\"}]", "[]"}, "\"files\" is empty"},
  };
  for (const auto& [change, message] : cases) {
    EXPECT_THAT(DecodeManifest(Changed(change.first, change.second)), IsInvalid(message)) << change.second;
  }
}

TEST(ManifestTest, NamesOfFilesLeadNowhereElse) {
  for (const std::string_view name : {"", ".", "..", ".hidden", "a/b", "/a", "../a", "a\\nb", "a\\u0000b", "a\\u007f",
                                      "a\\u009b", "manifest.json", "pinned"}) {
    EXPECT_THAT(DecodeManifest(Changed("state.pt", name)), IsInvalid("the name of a checkpoint's file is ")) << name;
  }
  EXPECT_THAT(DecodeManifest(Changed("state.pt", std::string(256, 'f'))), IsInvalid("1 to 255 bytes"));
  for (const std::string_view name : {"a", "a..b", "-rf", "~", "état.pt", "a b", "manifest.json2"}) {
    EXPECT_THAT(DecodeManifest(Changed("state.pt", name)), IsOk()) << name;
  }
  EXPECT_THAT(DecodeManifest(Changed("state.pt", std::string(255, 'f'))), IsOk());
}

TEST(ManifestTest, SizesDoNotOverflow) {
  const std::string_view more = "}, {\"name\": \"b\", \"bytes\": 9223372036854775807, \"crc32\": \"00000000\"}]";
  EXPECT_THAT(DecodeManifest(Changed("}]", more)), IsInvalid("the size of all files is too large"));
}

TEST(ManifestTest, MetricsMayBeIntegers) {
  const absl::StatusOr<CheckpointInfo> decoded = DecodeManifest(Changed("0.5", "-3"));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->metrics.at("loss"), -3.0);
}

TEST(ManifestTest, ChecksRefuseWhatIsNotUtf8) {
  EXPECT_THAT(CheckModel("\xff"), IsInvalid("the model is "));
  EXPECT_THAT(CheckMetricName("\xc3"), IsInvalid("the name of a metric"));
  EXPECT_THAT(CheckPayloadName("\xed\xa0\x80"), IsInvalid("the name of a checkpoint's file"));
  EXPECT_THAT(CheckRunId("\x80"), IsInvalid("the run id"));
  EXPECT_THAT(CheckModel(""), IsOk());
}

}  // namespace
}  // namespace cohort::internal
