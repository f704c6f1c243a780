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
constexpr char kSampler[] = "sampler";

std::vector<Field> FieldsOf(RunSettings& settings) {
  return {{"rows", &settings.rows},
          {"features", &settings.features},
          {"targets", &settings.targets},
          {"data_checksum", &settings.data_checksum},
          {"validation", &settings.validation},
          {"task", &settings.task},
          {"batch_size", &settings.batch_size},
          {"accumulate", &settings.accumulate},
          {"clip_grad_norm", &settings.clip_grad_norm},
          {"seed", &settings.seed},
          {"optimizer", &settings.optimizer},
          {"momentum", &settings.momentum},
          {"lr_step_size", &settings.lr_step_size},
          {"lr_gamma", &settings.lr_gamma},
          {"lr_cosine_epochs", &settings.lr_cosine_epochs},
          {"lr_warmup_epochs", &settings.lr_warmup_epochs}};
}

std::vector<Field> FieldsOf(SavedRun& run) {
  std::vector<Field> fields = FieldsOf(run.settings);
  fields.push_back({"loss_sums", &run.loss_sums});
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
std::string_view WhyNot(std::string_view name, const RunSettings& saved, const RunSettings& now) {
  if (name == "optimizer") return "the state of one optimizer means nothing to another one";
  if (name == "validation") return "rows that the model has learned from would be held out";
  if (name == "momentum" && now.optimizer == "rmsprop" && saved.momentum == 0) {
    return "the saved rmsprop has nothing that momentum could go on from";
  }
  if (name == "lr_cosine_epochs" || name == "lr_warmup_epochs") {
    return "such a schedule goes on from the rate that it has come to";
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
  dict.insert(kSampler, run.sampler);
  return c10::IValue(std::move(dict));
}

absl::StatusOr<SavedRun> ReadRunState(const c10::IValue& state) {
  SavedRun run;
  ABSL_ASSIGN_OR_RETURN(const c10::impl::GenericDict dict, internal::AsDict(state, kData));
  ABSL_ASSIGN_OR_RETURN(run.sampler, internal::ValueAt(dict, kSampler, kData));
  const c10::impl::GenericDict rest = dict.copy();
  (void)rest.erase(kSampler);
  ABSL_RETURN_IF_ERROR(internal::ReadFields(rest, FieldsOf(run), kData));
  for (const double sum : run.loss_sums) {
    if (std::isfinite(sum)) continue;
    return absl::InvalidArgumentError(absl::StrCat(kData, ": \"loss_sums\" has ", sum, "; it must be finite"));
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
    const std::string_view why_not = WhyNot(change.name, saved.settings, now);
    if (why_not.empty()) continue;
    if (reason.empty()) reason = why_not;
    absl::StrAppend(&before, " ", change.name, "=", change.saved);
    absl::StrAppend(&after, " ", change.name, "=", change.now);
  }
  if (reason.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("saved with", before, "; now", after, ": ", reason));
}

}  // namespace cohort
