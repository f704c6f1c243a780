#include "cohort/tools/ckpt/values.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "c10/core/ScalarType.h"
#include "cohort/checkpoint/state_file.h"
#include "cohort/tools/ckpt/report.h"

namespace cohort::ckpt {
namespace {

using Named = std::vector<std::pair<std::string, std::string>>;

// The shortest text that is read back as the same number.
std::string Number(double value) {
  if (std::isnan(value)) return absl::StrFormat("nan (%016x)", std::bit_cast<uint64_t>(value));
  for (const int digits : {15, 16}) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

// "0.5" and "0" would be an int elsewhere.
std::string Real(double value) {
  const std::string text = Number(value);
  return text.find_first_not_of("-0123456789") == text.npos ? text + ".0" : text;
}

void Collect(const c10::IValue& value, const std::string& name, Named& out) {
  const auto below = [&](const std::string& key) { return name.empty() ? key : absl::StrCat(name, ".", key); };
  if (value.isTensor()) return;
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    if (dict.empty()) out.emplace_back(name, "{}");
    for (const auto& item : dict) {
      Collect(item.value(), below(item.key().isString() ? item.key().toStringRef() : absl::StrCat(item.key().toInt())),
              out);
    }
    return;
  }
  if (value.isList() || value.isTuple()) {
    const auto items = value.isList() ? value.toListRef().vec() : value.toTupleRef().elements().vec();
    out.emplace_back(name, absl::StrCat(value.isList() ? "list of " : "tuple of ", items.size()));
    for (size_t i = 0; i < items.size(); ++i) Collect(items[i], below(absl::StrCat(i)), out);
    return;
  }
  std::string text = "None";
  if (value.isBool()) text = value.toBool() ? "True" : "False";
  if (value.isInt()) text = absl::StrCat(value.toInt());
  if (value.isDouble()) text = Real(value.toDouble());
  if (value.isComplexDouble()) {
    text = absl::StrCat("(", Real(value.toComplexDouble().real()), ", ", Real(value.toComplexDouble().imag()), ")j");
  }
  if (value.isString()) text = absl::StrCat("\"", Printable(value.toStringRef()), "\"");
  out.emplace_back(name, text);
}

}  // namespace

absl::StatusOr<Named> Values(const StateFile& file) {
  ABSL_ASSIGN_OR_RETURN(const c10::IValue state, file.Read({.map = true}));
  Named values;
  Collect(state, "", values);
  return values;
}

std::string DtypeName(at::ScalarType type) { return std::string(c10::getDtypeNames(type).first); }

}  // namespace cohort::ckpt
