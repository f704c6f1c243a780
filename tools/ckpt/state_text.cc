#include "cohort/tools/ckpt/state_text.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "c10/core/Device.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/torch_status.h"
#include "cohort/tools/ckpt/text.h"
#include "nlohmann/json.hpp"

namespace cohort::ckpt {
namespace {

using c10::IValue;

// Not a container, not a tensor.
Value Leaf(const IValue& value) {
  if (value.isNone()) return {.type = "None", .text = "None", .json = "null"};
  if (value.isBool()) {
    return {.type = "bool", .text = value.toBool() ? "True" : "False", .json = value.toBool() ? "true" : "false"};
  }
  if (value.isInt()) {
    const std::string text = absl::StrCat(value.toInt());
    return {.type = "int", .text = text, .json = text};
  }
  if (value.isDouble()) {
    const std::string text = FloatText(value.toDouble());
    const bool is_number = std::isfinite(value.toDouble());
    return {.type = "float", .text = text, .json = is_number ? text : internal::Quoted(text)};
  }
  if (value.isComplexDouble()) {
    const auto number = value.toComplexDouble();
    const std::string text = absl::StrCat("(", FloatText(number.real()), ", ", FloatText(number.imag()), "j)");
    return {.type = "complex", .text = text, .json = internal::Quoted(text)};
  }
  if (value.isString()) {
    const std::string& string = value.toStringRef();
    // All in ASCII: nothing in it drives a terminal.
    return {.type = "str",
            .text = internal::Quoted(string),
            .json = nlohmann::json(string).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)};
  }
  return {.type = value.tagKind(), .text = absl::StrCat("<", value.tagKind(), ">"), .json = "null"};
}

bool IsSequence(const IValue& value) { return value.isTuple() || value.isList(); }

std::vector<IValue> Items(const IValue& value) {
  if (value.isTuple()) return value.toTupleRef().elements().vec();
  return value.toListRef().vec();
}

// Whether it is easier to read item by item.
bool IsToSplit(const IValue& value) {
  if (value.isTensor() || value.isGenericDict()) return true;
  if (!IsSequence(value)) return false;
  const std::vector<IValue> items = Items(value);
  return std::any_of(items.begin(), items.end(), IsToSplit);
}

// A list or tuple that is shown as one, and what is in it.
Value Whole(const IValue& value) {
  if (!IsSequence(value)) return Leaf(value);
  std::vector<std::string> texts, jsons;
  for (const IValue& item : Items(value)) {
    Value whole = Whole(item);
    texts.push_back(std::move(whole.text));
    jsons.push_back(std::move(whole.json));
  }
  const std::string text = absl::StrJoin(texts, ", ");
  const std::string json = absl::StrCat("[", absl::StrJoin(jsons, ", "), "]");
  if (value.isList()) return {.type = "list", .text = absl::StrCat("[", text, "]"), .json = json};
  return {.type = "tuple", .text = absl::StrCat("(", text, texts.size() == 1 ? ",)" : ")"), .json = json};
}

// What tells {0: x} from {"0": x} and from [x].
Value SplitDict(const c10::Dict<IValue, IValue>& dict) {
  if (dict.empty()) return {.type = "dict", .text = "{}", .json = "{}"};
  std::vector<int64_t> numbers;
  for (const auto& item : dict) {
    if (item.key().isInt()) numbers.push_back(item.key().toInt());
  }
  std::sort(numbers.begin(), numbers.end());
  return {.type = "dict",
          .text = numbers.empty() ? "dict" : absl::StrCat("dict with the int keys ", absl::StrJoin(numbers, ", ")),
          .is_split = true};
}

class Collector {
 public:
  // `depth` 0 is the state itself.
  void Add(const IValue& value, const std::string& name, int depth) {
    if (value.isTensor()) return;
    const auto below = [&](std::string_view key) {
      return depth == 0 ? std::string(key) : absl::StrCat(name, ".", key);
    };
    if (value.isGenericDict()) {
      const auto dict = value.toGenericDict();
      Put(SplitDict(dict), name);
      for (const auto& item : dict) {
        const std::string key = item.key().isInt() ? absl::StrCat(item.key().toInt()) : item.key().toStringRef();
        Add(item.value(), below(key), depth + 1);
      }
    } else if (IsToSplit(value)) {
      const std::vector<IValue> items = Items(value);
      const std::string type = value.isTuple() ? "tuple" : "list";
      Put({.type = type, .text = absl::StrCat(type, " of ", items.size()), .is_split = true}, name);
      for (size_t i = 0; i < items.size(); ++i) Add(items[i], below(absl::StrCat(i)), depth + 1);
    } else {
      Put(Whole(value), name);
    }
  }

  std::vector<Value> values;

 private:
  void Put(Value value, const std::string& name) {
    value.name = name;
    values.push_back(std::move(value));
  }
};

}  // namespace

absl::StatusOr<StateFile> OpenState(const std::string& path) {
  struct stat info;
  // Why there is nothing to look at says nothing about a file, whatever the cause is called.
  if (stat(path.c_str(), &info) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("open ", internal::Quoted(path), ": ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(internal::Quoted(path), ": it is ",
                                                      S_ISDIR(info.st_mode)    ? "a directory"
                                                      : S_ISFIFO(info.st_mode) ? "a pipe"
                                                                               : "not a regular file"));
  }
  return StateFile::Open(path);
}

bool IsBadFile(const absl::Status& status) { return absl::IsInvalidArgument(status) || absl::IsDataLoss(status); }

std::string Reason(const absl::Status& status, std::string_view path) {
  std::string_view reason = status.message();
  const std::string quoted = internal::Quoted(path);
  if (!absl::ConsumePrefix(&reason, absl::StrCat(quoted, ": "))) {
    absl::ConsumePrefix(&reason, absl::StrCat("open ", quoted, ": "));
  }
  return internal::Printable(reason);
}

int64_t NumBytes(const TensorHeader& header) {
  int64_t number = static_cast<int64_t>(c10::elementSize(header.dtype));
  for (const int64_t size : header.sizes) number *= size;
  return number;
}

std::string DtypeText(const TensorHeader& header) { return std::string(c10::getDtypeNames(header.dtype).first); }

std::string ShapeText(const TensorHeader& header) { return absl::StrCat("[", absl::StrJoin(header.sizes, ", "), "]"); }

std::string FormatText(StateFormat format) { return format == StateFormat::kTorch ? ".pt" : "safetensors"; }

absl::StatusOr<std::vector<Value>> ValuesOf(const StateFile& file) {
  ABSL_ASSIGN_OR_RETURN(const IValue state, file.Read({.device = c10::kMeta, .verify = false}));
  return InvokeTorch([&] {
    Collector collector;
    collector.Add(state, "", 0);
    return std::move(collector.values);
  });
}

std::optional<int64_t> IntegerAt(const StateFile& file, std::string_view key) {
  const absl::StatusOr<StateFile> part = file.At(key);
  if (!part.ok() || !part->tensors().empty()) return std::nullopt;
  const absl::StatusOr<IValue> value = part->Read({.device = c10::kMeta, .verify = false});
  if (!value.ok() || !value->isInt()) return std::nullopt;
  return value->toInt();
}

}  // namespace cohort::ckpt
