#include "cohort/checkpoint/internal/run_file.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/internal/json_reader.h"
#include "cohort/checkpoint/internal/json_version.h"
#include "cohort/checkpoint/internal/json_writer.h"
#include "cohort/checkpoint/internal/manifest.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/utc_time.h"

namespace cohort::internal {
namespace {

constexpr int64_t kVersion = 1;

class RunFileEvents final : public JsonEvents {
 public:
  absl::Status Null() override { return Unexpected("null"); }
  absl::Status Bool(bool value) override { return Unexpected(value ? "true" : "false"); }
  absl::Status Int(int64_t value) override { return Unexpected(absl::StrCat(value)); }
  absl::Status Double(double value) override { return Unexpected(absl::StrCat(value)); }

  absl::Status String(std::string value) override {
    if (depth_ == 1 && key_ == "run_id") {
      ABSL_RETURN_IF_ERROR(CheckRunId(value));
      if (run_id_.has_value()) return Twice();
      run_id_ = std::move(value);
    } else if (depth_ == 1 && key_ == "created") {
      const std::optional<absl::Time> time = ParseUtcTime(value);
      if (!time.has_value()) return Unexpected(Quoted(value));
      if (created_.has_value()) return Twice();
      created_ = time;
    }
    return absl::OkStatus();
  }

  absl::Status Key(std::string key) override {
    if (depth_ == 1) key_ = std::move(key);
    return absl::OkStatus();
  }
  absl::Status BeginObject() override { return Begin("an object"); }
  absl::Status BeginArray() override { return Begin("a list"); }
  absl::Status End() override {
    --depth_;
    return absl::OkStatus();
  }

  absl::StatusOr<RunFile> Finish() {
    if (!run_id_.has_value()) return absl::InvalidArgumentError("there is no \"run_id\"");
    if (!created_.has_value()) return absl::InvalidArgumentError("there is no \"created\"");
    return RunFile{.run_id = *std::move(run_id_), .created = *created_};
  }

 private:
  absl::Status Begin(std::string_view value) {
    ABSL_RETURN_IF_ERROR(Unexpected(value));
    ++depth_;
    return absl::OkStatus();
  }

  // A value of a kind that the member does not have.
  absl::Status Unexpected(std::string_view value) const {
    if (depth_ != 1 || (key_ != "run_id" && key_ != "created")) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(Quoted(key_), " is ", value, "; allowed is ",
                     key_ == "created" ? "a time as \"2026-12-02T10:00:00Z\"" : "1 to 256 printable ASCII characters"));
  }

  absl::Status Twice() const { return absl::InvalidArgumentError(absl::StrCat(Quoted(key_), " stands there twice")); }

  int64_t depth_ = 0;  // 1 in the object that is the file
  std::string key_;
  std::optional<std::string> run_id_;
  std::optional<absl::Time> created_;
};

}  // namespace

std::string EncodeRunFile(const RunFile& run) {
  std::string json = absl::StrCat("{\"version\": ", kVersion, ", \"run_id\": ");
  AppendJsonString(run.run_id, json);
  return absl::StrCat(json, ", \"created\": \"", UtcSecondsText(run.created), "\"}\n");
}

absl::StatusOr<RunFile> DecodeRunFile(std::string_view text) {
  if (text.size() > kMaxRunFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", text.size(), " bytes; allowed are at most ", kMaxRunFileBytes));
  }
  ABSL_RETURN_IF_ERROR(CheckJsonVersion(text, kVersion));
  RunFileEvents events;
  ABSL_RETURN_IF_ERROR(ReadJson(text, events));
  return events.Finish();
}

}  // namespace cohort::internal
