// File: value_fields.h
//
// Fields: the dicts of Python's state schemas, read into C++ variables and written from them.

#ifndef COHORT_CHECKPOINT_INTERNAL_VALUE_FIELDS_H_
#define COHORT_CHECKPOINT_INTERNAL_VALUE_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <variant>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace cohort::internal {

// The variable behind a key. A number may be an int in Python where it is a double here, if it is one exactly; None is
// an empty optional; a list may be a tuple.
using FieldPlace = std::variant<bool*, int64_t*, double*, std::string*, std::optional<bool>*, std::optional<double>*,
                                std::vector<double>*, std::tuple<double, double>*>;

struct Field {
  std::string_view key;
  FieldPlace place;
  bool is_required = true;  // otherwise it is read if it is there; always written
};

// A dict for keys and values of every kind; keeps their order.
c10::impl::GenericDict NewDict();

// What `value` is, in Python's words: "None", "a str", "an int", "a dict", ...
std::string TypeName(const c10::IValue& value);

// The dict, or what `value` is instead: "WHAT is a list, not a dict".
absl::StatusOr<c10::impl::GenericDict> AsDict(const c10::IValue& value, std::string_view what);

// The value of a key, or "WHAT has no "KEY"".
absl::StatusOr<c10::IValue> ValueAt(const c10::impl::GenericDict& dict, std::string_view key, std::string_view what);

// Adds every field under its key, in order.
void PutFields(absl::Span<const Field> fields, c10::impl::GenericDict& dict);

// Reads every field. On failure some of the variables may be changed: let them be copies.
//
// Errors:
//   InvalidArgument    a key that is no field, is missing, or has a value of another type: "WHAT: "lr" is a str, not a
//                      number"
absl::Status ReadFields(const c10::impl::GenericDict& dict, absl::Span<const Field> fields, std::string_view what);

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_VALUE_FIELDS_H_
