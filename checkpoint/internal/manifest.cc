// A manifest is read in one pass over its events; no document is built, because a run may have 10,000 of them.

#include "cohort/checkpoint/internal/manifest.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/crc32.h"
#include "cohort/checkpoint/internal/duplicate_name.h"
#include "cohort/checkpoint/internal/json_reader.h"
#include "cohort/checkpoint/internal/json_version.h"
#include "cohort/checkpoint/internal/json_writer.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/utc_time.h"
#include "cohort/checkpoint/internal/utf8.h"

namespace cohort::internal {
namespace {

constexpr int64_t kVersion = 1;
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr size_t kMaxRunIdBytes = 256;
constexpr size_t kMaxModelBytes = 1024;
constexpr size_t kMaxMetricBytes = 256;
constexpr size_t kMaxFileNameBytes = 255;  // what file systems allow

// The end of a manifest: kSeal, eight digits, kEnd.
constexpr std::string_view kSeal = ",\n \"manifest_crc32\": \"";
constexpr std::string_view kEnd = "\"}\n";
constexpr size_t kHexDigits = 8;

// UTF-8 without control characters, U+0080 to U+009F included, which drive terminals as well.
bool IsText(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (absl::ascii_iscntrl(text[i])) return false;
    const bool is_c1 = text[i] == '\xc2' && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if (is_c1) return false;
  }
  return IsUtf8(text);
}

absl::Status Refused(std::string_view what, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", value, "; allowed is ", allowed));
}

// Lower-case, so that one text has one checksum and the other way round.
std::optional<uint32_t> ParseCrc32(std::string_view text) {
  const bool is_hex =
      std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isdigit(c) || (c >= 'a' && c <= 'f'); });
  uint32_t crc32 = 0;
  if (text.size() != kHexDigits || !is_hex || !absl::SimpleHexAtoi(text, &crc32)) return std::nullopt;
  return crc32;
}

std::optional<double> ParseNotFinite(std::string_view text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return kInfinity;
  if (text == "-Infinity") return -kInfinity;
  return std::nullopt;
}

void AppendMetric(double value, std::string& json) {
  if (std::isfinite(value)) return AppendJsonDouble(value, json);
  absl::StrAppend(&json, std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"");
}

enum class Field {
  kVersion,
  kRunId,
  kSequence,
  kStep,
  kSaved,
  kWorldSize,
  kModel,
  kMetrics,
  kFiles,
  kNumManifestFields,
  kName = kNumManifestFields,
  kBytes,
  kCrc32,
  kMetric,   // a value in "metrics"
  kFile,     // an item of "files"
  kUnknown,  // of another name
};

struct Rule {
  Field field;
  std::string_view name;
  std::string_view allowed;
};

constexpr std::string_view kCount = "an integer from 0 to 9223372036854775807";
constexpr Rule kManifestRules[] = {
    {Field::kVersion, "version", "1"},
    {Field::kRunId, "run_id", "1 to 256 printable ASCII characters"},
    // The next save has the next number.
    {Field::kSequence, "sequence", "an integer from 0 to 9223372036854775806"},
    {Field::kStep, "step", kCount},
    {Field::kSaved, "saved", "a time as \"2026-12-02T10:00:00.123456Z\""},
    {Field::kWorldSize, "world_size", "an integer from 1 to 2147483647"},
    {Field::kModel, "model", "at most 1024 bytes of UTF-8 without control characters"},
    {Field::kMetrics, "metrics", "an object"},
    {Field::kFiles, "files", "a list"},
};
constexpr Rule kFileRules[] = {
    {Field::kName, "name",
     "a plain name: 1 to 255 bytes of UTF-8 without control characters and \"/\", not beginning with \".\", not "
     "\"manifest.json\" and not \"pinned\""},
    {Field::kBytes, "bytes", kCount},
    {Field::kCrc32, "crc32", "eight hexadecimal digits"},
};
constexpr std::string_view kMetricRule = "a number, \"NaN\", \"Infinity\" or \"-Infinity\"";
constexpr std::string_view kMetricNameRule = "1 to 256 bytes of UTF-8 without control characters";

class ManifestEvents final : public JsonEvents {
 public:
  absl::Status Null() override { return Unexpected("null"); }
  absl::Status Bool(bool value) override { return Unexpected(value ? "true" : "false"); }

  absl::Status Int(int64_t value) override {
    switch (field_) {
      case Field::kVersion:
        return absl::OkStatus();  // has been looked at
      case Field::kSequence:
        return Take(value, 0, kMaxSequence, info_.sequence);
      case Field::kStep:
        return Take(value, 0, kMaxInt64, info_.step);
      case Field::kWorldSize:
        return Take(value, 1, std::numeric_limits<int>::max(), info_.world_size);
      case Field::kBytes:
        return Take(value, 0, kMaxInt64, info_.files.back().num_bytes);
      case Field::kMetric:
        return TakeMetric(static_cast<double>(value));
      default:
        return Unexpected(absl::StrCat(value));
    }
  }

  absl::Status Double(double value) override {
    if (field_ == Field::kMetric) return TakeMetric(value);
    return Unexpected(absl::StrCat(value));
  }

  absl::Status String(std::string value) override {
    switch (field_) {
      case Field::kRunId:
        ABSL_RETURN_IF_ERROR(CheckRunId(value));
        info_.run_id = std::move(value);
        return absl::OkStatus();
      case Field::kSaved:
        return Take(ParseUtcTime(value), value, info_.saved);
      case Field::kModel:
        ABSL_RETURN_IF_ERROR(CheckModel(value));
        info_.model = std::move(value);
        return absl::OkStatus();
      case Field::kName:
        ABSL_RETURN_IF_ERROR(CheckPayloadName(value));
        info_.files.back().name = std::move(value);
        return absl::OkStatus();
      case Field::kCrc32:
        return Take(ParseCrc32(value), value, info_.files.back().crc32);
      case Field::kMetric: {
        double number = 0;
        ABSL_RETURN_IF_ERROR(Take(ParseNotFinite(value), value, number));
        return TakeMetric(number);
      }
      default:
        return Unexpected(Quoted(value));
    }
  }

  absl::Status Key(std::string key) override {
    switch (in_) {
      case In::kManifest:
        return Find(kManifestRules, key, seen_);
      case In::kFile:
        return Find(kFileRules, key, seen_in_file_);
      case In::kMetrics:
        ABSL_RETURN_IF_ERROR(CheckMetricName(key));
        if (info_.metrics.contains(key)) return Twice(absl::StrCat("the metric ", Quoted(key)));
        metric_ = std::move(key);
        return absl::OkStatus();
      default:
        return absl::OkStatus();
    }
  }

  absl::Status BeginObject() override {
    if (in_ == In::kNothing) {
      in_ = In::kManifest;
    } else if (field_ == Field::kMetrics) {
      in_ = In::kMetrics;
      field_ = Field::kMetric;
    } else if (field_ == Field::kFile) {
      in_ = In::kFile;
      info_.files.emplace_back();
      seen_in_file_ = 0;
    } else {
      return BeginUnknown("an object");
    }
    return absl::OkStatus();
  }

  absl::Status BeginArray() override {
    if (field_ != Field::kFiles) return BeginUnknown("a list");
    in_ = In::kFiles;
    field_ = Field::kFile;
    return absl::OkStatus();
  }

  absl::Status End() override {
    if (unknown_depth_ > 0) {
      --unknown_depth_;
      return absl::OkStatus();
    }
    switch (in_) {
      case In::kFile:
        in_ = In::kFiles;
        field_ = Field::kFile;
        return CheckAllThere(kFileRules, seen_in_file_, absl::StrCat("file ", info_.files.size(), ": "));
      case In::kManifest:
        in_ = In::kNothing;
        return CheckAllThere(kManifestRules, seen_, "");
      default:
        in_ = In::kManifest;
        return absl::OkStatus();
    }
  }

  absl::StatusOr<CheckpointInfo> Finish() {
    if (info_.files.empty()) return Refused("\"files\"", "empty", "at least one file");
    int64_t total = 0;
    std::vector<std::string_view> names;
    for (const CheckpointFile& file : info_.files) {
      if (file.num_bytes > kMaxInt64 - total) return Refused("the size of all files", "too large", kCount);
      total += file.num_bytes;
      names.push_back(file.name);
    }
    if (const auto twice = DuplicateName(std::move(names))) return Twice(absl::StrCat("the file ", Quoted(*twice)));
    return std::move(info_);
  }

 private:
  enum class In { kNothing, kManifest, kMetrics, kFiles, kFile };

  static absl::Status Twice(std::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(what, " stands there twice"));
  }

  template <size_t size>
  absl::Status Find(const Rule (&rules)[size], std::string_view name, uint32_t& seen) {
    if (unknown_depth_ > 0) return absl::OkStatus();
    field_ = Field::kUnknown;
    for (size_t i = 0; i < size; ++i) {
      if (rules[i].name != name) continue;
      field_ = rules[i].field;
      if (seen & (1u << i)) return Twice(Quoted(name));
      seen |= 1u << i;
    }
    return absl::OkStatus();
  }

  template <size_t size>
  static absl::Status CheckAllThere(const Rule (&rules)[size], uint32_t seen, std::string_view place) {
    for (size_t i = 0; i < size; ++i) {
      if (seen & (1u << i)) continue;
      return absl::InvalidArgumentError(absl::StrCat(place, "there is no ", Quoted(rules[i].name)));
    }
    return absl::OkStatus();
  }

  template <typename Number>
  absl::Status Take(int64_t value, int64_t least, int64_t most, Number& to) {
    if (value < least || value > most) return Unexpected(absl::StrCat(value));
    to = static_cast<Number>(value);
    return absl::OkStatus();
  }

  // What was read of `text`, if it is what it must be.
  template <typename Value>
  absl::Status Take(const std::optional<Value>& read, std::string_view text, Value& to) {
    if (!read.has_value()) return Unexpected(Quoted(text));
    to = *read;
    return absl::OkStatus();
  }

  absl::Status TakeMetric(double value) {
    info_.metrics.emplace_hint(info_.metrics.end(), std::move(metric_), value);
    return absl::OkStatus();
  }

  absl::Status BeginUnknown(std::string_view value) {
    ABSL_RETURN_IF_ERROR(Unexpected(value));
    ++unknown_depth_;
    return absl::OkStatus();
  }

  // A value of a kind, or out of the range, that the field does not have.
  absl::Status Unexpected(std::string_view value) const {
    if (unknown_depth_ > 0) return absl::OkStatus();
    if (in_ == In::kNothing) return Refused("it", value, "an object");
    switch (field_) {
      case Field::kUnknown:
        return absl::OkStatus();
      case Field::kFile:
        return Refused(absl::StrCat("file ", info_.files.size() + 1), value, "an object");
      case Field::kMetric:
        return Refused(absl::StrCat("the metric ", Quoted(metric_)), value, kMetricRule);
      default:
        break;
    }
    const bool is_of_file = field_ >= Field::kNumManifestFields;
    const Rule& rule = is_of_file ? kFileRules[static_cast<size_t>(field_) - std::size(kManifestRules)]
                                  : kManifestRules[static_cast<size_t>(field_)];
    const std::string place = is_of_file ? absl::StrCat("file ", info_.files.size(), ": ") : "";
    return Refused(absl::StrCat(place, Quoted(rule.name)), value, rule.allowed);
  }

  CheckpointInfo info_;
  In in_ = In::kNothing;
  Field field_ = Field::kUnknown;  // what the next value is, if it is not one in an unknown one
  int64_t unknown_depth_ = 0;      // of objects and lists in a member that is not known
  uint32_t seen_ = 0;              // by place in kManifestRules
  uint32_t seen_in_file_ = 0;      // by place in kFileRules
  std::string metric_;
};

absl::Status CheckSeal(std::string_view text) {
  const auto refused = [](std::string_view why) { return absl::DataLossError(why); };
  std::string_view body = text;
  if (!absl::ConsumeSuffix(&body, kEnd) || body.size() < kSeal.size() + kHexDigits) {
    return refused("it does not end with its checksum: it is cut, or damaged");
  }
  const std::string_view digits = body.substr(body.size() - kHexDigits);
  body.remove_suffix(kHexDigits);
  const std::optional<uint32_t> saved = ParseCrc32(digits);
  if (!absl::ConsumeSuffix(&body, kSeal) || !saved.has_value()) {
    return refused("it does not end with its checksum: it is cut, or damaged");
  }
  const uint32_t found = Crc32(body);
  if (found == *saved) return absl::OkStatus();
  return refused(absl::StrFormat("it has the checksum %08x, and %08x was saved with it: it is damaged", found, *saved));
}

}  // namespace

absl::Status CheckRunId(std::string_view id) {
  const bool is_printable = std::all_of(id.begin(), id.end(), [](char c) { return absl::ascii_isprint(c); });
  if (!id.empty() && id.size() <= kMaxRunIdBytes && is_printable) return absl::OkStatus();
  return Refused("the run id", Quoted(id), kManifestRules[static_cast<size_t>(Field::kRunId)].allowed);
}

absl::Status CheckModel(std::string_view model) {
  if (model.size() <= kMaxModelBytes && IsText(model)) return absl::OkStatus();
  return Refused("the model", Quoted(model), kManifestRules[static_cast<size_t>(Field::kModel)].allowed);
}

absl::Status CheckMetricName(std::string_view name) {
  if (!name.empty() && name.size() <= kMaxMetricBytes && IsText(name)) return absl::OkStatus();
  return Refused("the name of a metric", Quoted(name), kMetricNameRule);
}

absl::Status CheckPayloadName(std::string_view name) {
  const bool is_plain = !name.empty() && name.size() <= kMaxFileNameBytes && name.front() != '.' &&
                        name.find('/') == std::string_view::npos && IsText(name);
  if (is_plain && name != kManifestName && name != kPinnedName) return absl::OkStatus();
  return Refused("the name of a checkpoint's file", Quoted(name), kFileRules[0].allowed);
}

std::string EncodeManifest(const CheckpointInfo& info) {
  std::string json = absl::StrCat("{\"version\": ", kVersion, ", \"run_id\": ");
  AppendJsonString(info.run_id, json);
  absl::StrAppend(&json, ", \"sequence\": ", info.sequence, ", \"step\": ", info.step, ", \"saved\": \"",
                  UtcMicrosecondsText(info.saved), "\", \"world_size\": ", info.world_size, ",\n \"model\": ");
  AppendJsonString(info.model, json);
  absl::StrAppend(&json, ", \"metrics\": {");
  std::string_view separator;
  for (const auto& [name, value] : info.metrics) {
    absl::StrAppend(&json, std::exchange(separator, ", "));
    AppendJsonString(name, json);
    absl::StrAppend(&json, ": ");
    AppendMetric(value, json);
  }
  absl::StrAppend(&json, "}, \"files\": [");
  separator = "";
  for (const CheckpointFile& file : info.files) {
    absl::StrAppend(&json, std::exchange(separator, ", "), "{\"name\": ");
    AppendJsonString(file.name, json);
    absl::StrAppendFormat(&json, ", \"bytes\": %d, \"crc32\": \"%08x\"}", file.num_bytes, file.crc32);
  }
  absl::StrAppend(&json, "]");
  absl::StrAppendFormat(&json, "%s%08x%s", kSeal, Crc32(json), kEnd);
  return json;
}

absl::StatusOr<CheckpointInfo> DecodeManifest(std::string_view text) {
  if (text.size() > kMaxManifestBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes; allowed are at most ", kMaxManifestBytes));
  }
  ABSL_RETURN_IF_ERROR(CheckJsonVersion(text, kVersion));
  ABSL_RETURN_IF_ERROR(CheckSeal(text));
  ManifestEvents events;
  ABSL_RETURN_IF_ERROR(ReadJson(text, events));
  return events.Finish();
}

}  // namespace cohort::internal
