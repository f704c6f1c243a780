// A field too many, too few or of another kind is an error at once, so that no more is ever held than a header needs.

#include "cohort/checkpoint/internal/safetensors_parser.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/dtype.h"
#include "cohort/checkpoint/internal/json_reader.h"
#include "cohort/checkpoint/internal/memory_budget.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/random_access_file.h"
#include "cohort/checkpoint/internal/safetensors_header.h"

namespace cohort::internal {
namespace {

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

class HeaderEvents : public JsonEvents {
 public:
  explicit HeaderEvents(MemoryBudget& budget) : budget_(budget) {}

  absl::Status Null() override { return Unexpected("null"); }
  absl::Status Bool(bool /*value*/) override { return Unexpected("true or false"); }
  absl::Status Double(double /*value*/) override { return Unexpected("a number with a fraction or an exponent"); }

  absl::Status Int(int64_t value) override {
    if (expected_ != kSize && expected_ != kOffset) return Unexpected("an integer");
    if (value < 0) return Invalid(Place(), ": ", value, " is less than 0");
    std::vector<int64_t>& numbers = expected_ == kSize ? header_.entries.back().sizes : offsets_;
    if (expected_ == kOffset && numbers.size() == 2) return Unexpected("a third one");
    ABSL_RETURN_IF_ERROR(MakeRoomForOne(numbers, budget_));
    numbers.push_back(value);
    return absl::OkStatus();
  }

  absl::Status String(std::string value) override {
    if (expected_ == kText) {
      value.shrink_to_fit();
      ABSL_RETURN_IF_ERROR(budget_.Charge(HeapBytes(value)));
      header_.metadata.back().second = std::move(value);
      expected_ = kMetadataKey;
      return absl::OkStatus();
    }
    if (expected_ != kDtype) return Unexpected("a string");
    const std::optional<Dtype> dtype = DtypeOfSafetensors(value);
    if (!dtype.has_value()) return Invalid(Place(), ": no dtype ", Quoted(value), " can be read");
    header_.entries.back().dtype = *dtype;
    expected_ = kField;
    return absl::OkStatus();
  }

  absl::Status Key(std::string key) override {
    if (expected_ == kField) return Field(key);
    if (expected_ == kMetadataKey) {
      ABSL_RETURN_IF_ERROR(budget_.Charge(HeapBytes(key)));
      ABSL_RETURN_IF_ERROR(MakeRoomForOne(header_.metadata, budget_));
      header_.metadata.emplace_back(std::move(key), "");
      expected_ = kText;
      return absl::OkStatus();
    }
    if (key == kMetadataName) {
      if (std::exchange(has_metadata_, true)) return Invalid(Quoted(key), " occurs twice");
      expected_ = kMetadata;
      return absl::OkStatus();
    }
    ABSL_RETURN_IF_ERROR(budget_.Charge(ParsedSafetensorsHeader::kEntryBytes + HeapBytes(key)));
    header_.entries.emplace_back().name = std::move(key);
    fields_ = 0;
    expected_ = kTensor;
    return absl::OkStatus();
  }

  absl::Status BeginObject() override {
    switch (expected_) {
      case kHeader:
        expected_ = kName;
        return absl::OkStatus();
      case kMetadata:
        expected_ = kMetadataKey;
        return absl::OkStatus();
      case kTensor:
        expected_ = kField;
        return absl::OkStatus();
      default:
        return Unexpected("an object");
    }
  }

  absl::Status BeginArray() override {
    switch (expected_) {
      case kShape:
        expected_ = kSize;
        return absl::OkStatus();
      case kOffsets:
        expected_ = kOffset;
        return absl::OkStatus();
      default:
        return Unexpected("a list");
    }
  }

  absl::Status End() override {
    switch (expected_) {
      case kSize:
        expected_ = kField;
        return absl::OkStatus();
      case kOffset:
        return EndOffsets();
      case kField:
        return EndTensor();
      default:
        expected_ = kName;
        return absl::OkStatus();  // of the metadata, or of all
    }
  }

  ParsedSafetensorsHeader Take() { return std::move(header_); }

 private:
  // What comes next.
  enum Expected {
    kHeader,
    kName,
    kMetadata,
    kMetadataKey,
    kText,
    kTensor,
    kField,
    kDtype,
    kShape,
    kSize,
    kOffsets,
    kOffset
  };

  std::string Place() const {
    switch (expected_) {
      case kHeader:
      case kName:
        return "the header";
      case kMetadata:
      case kMetadataKey:
        return Quoted(kMetadataName);
      case kText:
        return absl::StrCat("the metadata's ", Quoted(header_.metadata.back().first));
      case kDtype:
        return Tensor("dtype");
      case kShape:
      case kSize:
        return Tensor("shape");
      case kOffsets:
      case kOffset:
        return Tensor("data_offsets");
      default:
        return Tensor("description");
    }
  }
  std::string Tensor(std::string_view field) const {
    return absl::StrCat("the tensor ", Quoted(header_.entries.back().name), ": its ", field);
  }

  absl::Status Unexpected(std::string_view found) const {
    switch (expected_) {
      case kText:
      case kDtype:
        return Invalid(Place(), " has to be a string, not ", found);
      case kShape:
      case kSize:
        return Invalid(Place(), " has to be a list of integers, not ", found);
      case kOffsets:
      case kOffset:
        return Invalid(Place(), " have to be two integers, not ", found);
      default:
        return Invalid(Place(), " has to be an object, not ", found);
    }
  }

  absl::Status Field(std::string_view key) {
    if (key == "dtype") {
      expected_ = kDtype;
    } else if (key == "shape") {
      expected_ = kShape;
    } else if (key == "data_offsets") {
      expected_ = kOffsets;
    } else {
      return Invalid(Place(), " has the field ", Quoted(key), ", which the format does not know");
    }
    const int bit = 1 << expected_;
    if (fields_ & bit) return Invalid(Place(), " occurs twice");
    fields_ |= bit;
    return absl::OkStatus();
  }

  absl::Status EndOffsets() {
    if (offsets_.size() != 2) return Unexpected(absl::StrCat(offsets_.size()));
    header_.entries.back().begin = offsets_[0];
    header_.entries.back().end = offsets_[1];
    offsets_.clear();
    expected_ = kField;
    return absl::OkStatus();
  }

  absl::Status EndTensor() {
    if (fields_ != (1 << kDtype | 1 << kShape | 1 << kOffsets)) {
      return Invalid(Place(), " has to have dtype, shape and data_offsets");
    }
    expected_ = kName;
    return absl::OkStatus();
  }

  MemoryBudget& budget_;
  ParsedSafetensorsHeader header_;
  Expected expected_ = kHeader;
  bool has_metadata_ = false;
  int fields_ = 0;  // of the last entry: bits
  std::vector<int64_t> offsets_;
};

}  // namespace

absl::StatusOr<ParsedSafetensorsHeader> ParseSafetensorsHeader(const RandomAccessFile& file, int64_t offset,
                                                               int64_t num_bytes, MemoryBudget& budget) {
  HeaderEvents events(budget);
  ABSL_RETURN_IF_ERROR(ReadJson(file, offset, num_bytes, budget, events));
  return events.Take();
}

}  // namespace cohort::internal
