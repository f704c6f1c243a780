#include "cohort/trainers/run_settings.h"

#include <charconv>
#include <cmath>
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

using internal::Field;

constexpr std::string_view kData = "\"data\"";

std::vector<Field> FieldsOf(RunSettings& settings) {
  return {{"rows", &settings.rows},
          {"features", &settings.features},
          {"targets", &settings.targets},
          {"data_checksum", &settings.data_checksum},
          {"batch_size", &settings.batch_size},
          {"seed", &settings.seed},
          {"optimizer", &settings.optimizer},
          {"momentum", &settings.momentum},
          {"lr_step_size", &settings.lr_step_size},
          {"lr_gamma", &settings.lr_gamma}};
}

std::vector<Field> FieldsOf(SavedRun& run) {
  std::vector<Field> fields = FieldsOf(run.settings);
  fields.push_back({"rows_done", &run.position.rows_done, /*is_required=*/false});
  fields.push_back({"squared_error", &run.position.squared_error, /*is_required=*/false});
  return fields;
}

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

// Why a run cannot go on with another value of the setting `name`; empty if it can.
std::string_view WhyNot(std::string_view name, const SavedRun& saved, const RunSettings& now) {
  if (name == "optimizer") return "the state of one optimizer means nothing to another one";
  if (name == "seed" && saved.position.rows_done > 0) {
    return "the epoch that was begun is to be finished in the order of its rows";
  }
  if (name == "momentum" && now.optimizer == "rmsprop" && saved.settings.momentum == 0) {
    return "the saved rmsprop has nothing that momentum could go on from";
  }
  if (name == "rows" || name == "features" || name == "targets" || name == "data_checksum") {
    return "features are standardized over all rows, so that a model is one of its data";
  }
  return "";
}

}  // namespace

c10::IValue RunState(const SavedRun& run) {
  SavedRun copy = run;
  c10::impl::GenericDict dict = internal::NewDict();
  internal::PutFields(FieldsOf(copy), dict);
  return c10::IValue(std::move(dict));
}

absl::StatusOr<SavedRun> ReadRunState(const c10::IValue& state) {
  SavedRun run;
  ABSL_ASSIGN_OR_RETURN(const c10::impl::GenericDict dict, internal::AsDict(state, kData));
  ABSL_RETURN_IF_ERROR(internal::ReadFields(dict, FieldsOf(run), kData));
  const EpochPosition& at = run.position;
  if (at.rows_done < 0 || (at.rows_done > 0 && at.rows_done >= run.settings.rows)) {
    return absl::InvalidArgumentError(absl::StrCat(kData, ": \"rows_done\" is ", at.rows_done,
                                                   "; it must be at least 0 and less than the ", run.settings.rows,
                                                   " rows of an epoch"));
  }
  if (!std::isfinite(at.squared_error) || at.squared_error < 0 || (at.rows_done == 0 && at.squared_error != 0)) {
    return absl::InvalidArgumentError(absl::StrCat(kData, ": \"squared_error\" of ", at.rows_done, " rows is ",
                                                   at.squared_error, "; it must be finite, at least 0, and 0 of none"));
  }
  return run;
}

std::vector<SettingChange> ChangesOf(const RunSettings& saved, const RunSettings& now) {
  RunSettings before = saved, after = now;
  const std::vector<Field> saved_fields = FieldsOf(before), now_fields = FieldsOf(after);
  std::vector<SettingChange> changes;
  for (size_t i = 0; i < now_fields.size(); ++i) {
    const std::string then = Shown(saved_fields[i].place), here = Shown(now_fields[i].place);
    if (then != here) changes.push_back({.name = now_fields[i].key, .saved = then, .now = here});
  }
  return changes;
}

absl::Status CheckCanGoOn(const SavedRun& saved, const RunSettings& now) {
  std::string before, after;
  std::string_view reason;
  for (const SettingChange& change : ChangesOf(saved.settings, now)) {
    const std::string_view why_not = WhyNot(change.name, saved, now);
    if (why_not.empty()) continue;
    if (reason.empty()) reason = why_not;
    absl::StrAppend(&before, " ", change.name, "=", change.saved);
    absl::StrAppend(&after, " ", change.name, "=", change.now);
  }
  if (reason.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("saved with", before, "; now", after, ": ", reason));
}

}  // namespace cohort
