#include "cohort/trainers/run_settings.h"

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/value_fields.h"

namespace cohort {
namespace {

// So that different values look different.
std::string Shown(const internal::FieldPlace& place) {
  if (const auto* integer = std::get_if<int64_t*>(&place)) return absl::StrCat(**integer);
  if (const auto* text = std::get_if<std::string*>(&place)) {
    // It comes from a file: it may hold a newline, or be long. Ours are shorter than that.
    const std::string_view start = std::string_view(**text).substr(0, 64);
    return absl::StrCat("\"", absl::CHexEscape(start), start.size() < (*text)->size() ? "\"..." : "\"");
  }
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), *std::get<double*>(place)).ptr;
  return std::string(digits, end);
}

}  // namespace

std::vector<internal::Field> RunSettings::Fields() {
  return {{"rows", &rows},
          {"features", &features},
          {"targets", &targets},
          {"data_checksum", &data_checksum},
          {"batch_size", &batch_size},
          {"seed", &seed},
          {"optimizer", &optimizer},
          {"momentum", &momentum},
          {"lr_step_size", &lr_step_size},
          {"lr_gamma", &lr_gamma}};
}

c10::IValue RunSettings::State() const {
  RunSettings copy = *this;
  c10::impl::GenericDict dict = internal::NewDict();
  internal::PutFields(copy.Fields(), dict);
  return c10::IValue(std::move(dict));
}

absl::Status RunSettings::CheckSavedAs(const c10::IValue& state) const {
  RunSettings saved, now = *this;
  const std::vector<internal::Field> saved_fields = saved.Fields(), now_fields = now.Fields();
  ABSL_ASSIGN_OR_RETURN(const c10::impl::GenericDict dict, internal::AsDict(state, "\"data\""));
  ABSL_RETURN_IF_ERROR(internal::ReadFields(dict, saved_fields, "\"data\""));
  std::string before, after;
  for (size_t i = 0; i < now_fields.size(); ++i) {
    const std::string then = Shown(saved_fields[i].place), here = Shown(now_fields[i].place);
    if (then == here) continue;
    absl::StrAppend(&before, " ", now_fields[i].key, "=", then);
    absl::StrAppend(&after, " ", now_fields[i].key, "=", here);
  }
  if (before.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("saved with", before, "; now", after));
}

}  // namespace cohort
