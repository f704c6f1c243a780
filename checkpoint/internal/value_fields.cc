#include "cohort/checkpoint/internal/value_fields.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/functional/overload.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"

namespace cohort::internal {
namespace {

constexpr int64_t kMaxExactInt = int64_t{1} << 53;  // beyond, a double may not hold it

std::optional<double> NumberOf(const c10::IValue& value) {
  if (value.isDouble()) return value.toDouble();
  if (!value.isInt()) return std::nullopt;
  const int64_t number = value.toInt();
  if (number > kMaxExactInt || number < -kMaxExactInt) return std::nullopt;
  return static_cast<double>(number);
}

std::optional<std::vector<double>> NumbersOf(const c10::IValue& value) {
  std::vector<c10::IValue> items;
  if (value.isList()) {
    items = value.toListRef().vec();
  } else if (value.isTuple()) {
    items.assign(value.toTupleRef().elements().begin(), value.toTupleRef().elements().end());
  } else {
    return std::nullopt;
  }
  std::vector<double> numbers;
  for (const c10::IValue& item : items) {
    const std::optional<double> number = NumberOf(item);
    if (!number.has_value()) return std::nullopt;
    numbers.push_back(*number);
  }
  return numbers;
}

// Takes `value` into the variable. Otherwise returns what it ought to be.
std::string_view Assign(const c10::IValue& value, const FieldPlace& place) {
  return std::visit(absl::Overload(
                        [&](bool* to) -> std::string_view {
                          if (!value.isBool()) return "a bool";
                          *to = value.toBool();
                          return "";
                        },
                        [&](int64_t* to) -> std::string_view {
                          if (!value.isInt()) return "an int";
                          *to = value.toInt();
                          return "";
                        },
                        [&](double* to) -> std::string_view {
                          const std::optional<double> number = NumberOf(value);
                          if (!number.has_value()) return "a number that a double holds";
                          *to = *number;
                          return "";
                        },
                        [&](std::string* to) -> std::string_view {
                          if (!value.isString()) return "a str";
                          *to = value.toStringRef();
                          return "";
                        },
                        [&](std::optional<double>* to) -> std::string_view {
                          *to = NumberOf(value);
                          return value.isNone() || to->has_value() ? "" : "None or a number that a double holds";
                        },
                        [&](std::vector<double>* to) -> std::string_view {
                          std::optional<std::vector<double>> numbers = NumbersOf(value);
                          if (!numbers.has_value()) return "a list of numbers";
                          *to = *std::move(numbers);
                          return "";
                        },
                        [&](std::tuple<double, double>* to) -> std::string_view {
                          const std::optional<std::vector<double>> numbers = NumbersOf(value);
                          if (!numbers.has_value() || numbers->size() != 2) return "a pair of numbers";
                          *to = {(*numbers)[0], (*numbers)[1]};
                          return "";
                        },
                        [&](std::optional<bool>* to) -> std::string_view {
                          if (!value.isNone() && !value.isBool()) return "None or a bool";
                          *to = value.isNone() ? std::nullopt : std::optional<bool>(value.toBool());
                          return "";
                        }),
                    place);
}

c10::IValue ValueOf(const FieldPlace& place) {
  return std::visit(absl::Overload([](const std::optional<bool>* from) { return c10::IValue(*from); },
                                   [](const std::optional<double>* from) { return c10::IValue(*from); },
                                   [](const std::vector<double>* from) {
                                     c10::impl::GenericList list(c10::AnyType::get());
                                     for (const double number : *from) list.push_back(number);
                                     return c10::IValue(std::move(list));
                                   },
                                   [](const std::tuple<double, double>* from) { return c10::IValue(*from); },
                                   [](const auto* from) { return c10::IValue(*from); }),
                    place);
}

}  // namespace

c10::impl::GenericDict NewDict() { return c10::impl::GenericDict(c10::AnyType::get(), c10::AnyType::get()); }

std::string TypeName(const c10::IValue& value) {
  if (value.isNone()) return "None";
  if (value.isBool()) return "a bool";
  if (value.isInt()) return "an int";
  if (value.isDouble()) return "a float";
  if (value.isString()) return "a str";
  if (value.isTensor()) return "a tensor";
  if (value.isList()) return "a list";
  if (value.isTuple()) return "a tuple";
  if (value.isGenericDict()) return "a dict";
  return value.tagKind();
}

absl::StatusOr<c10::impl::GenericDict> AsDict(const c10::IValue& value, std::string_view what) {
  if (value.isGenericDict()) return value.toGenericDict();
  return absl::InvalidArgumentError(absl::StrCat(what, " is ", TypeName(value), ", not a dict"));
}

absl::StatusOr<c10::IValue> ValueAt(const c10::impl::GenericDict& dict, std::string_view key, std::string_view what) {
  const auto found = dict.find(std::string(key));
  if (found != dict.end()) return found->value();
  return absl::InvalidArgumentError(absl::StrCat(what, " has no ", Quoted(key)));
}

void PutFields(absl::Span<const Field> fields, c10::impl::GenericDict& dict) {
  for (const Field& field : fields) dict.insert_or_assign(std::string(field.key), ValueOf(field.place));
}

absl::Status ReadFields(const c10::impl::GenericDict& dict, absl::Span<const Field> fields, std::string_view what) {
  for (const auto& entry : dict) {
    if (!entry.key().isString()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": a key is ", TypeName(entry.key()), ", not a str"));
    }
    const std::string& key = entry.key().toStringRef();
    const auto field = absl::c_find_if(fields, [&](const Field& f) { return f.key == key; });
    if (field == fields.end()) {
      return absl::InvalidArgumentError(absl::StrCat(what, ": unknown key ", Quoted(key)));
    }
    if (const std::string_view wanted = Assign(entry.value(), field->place); !wanted.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(what, ": ", Quoted(key), " is ", TypeName(entry.value()), ", not ", wanted));
    }
  }
  for (const Field& field : fields) {
    if (!field.is_required) continue;
    ABSL_RETURN_IF_ERROR(ValueAt(dict, field.key, what).status());
  }
  return absl::OkStatus();
}

}  // namespace cohort::internal
