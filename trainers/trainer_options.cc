#include "cohort/trainers/trainer_options.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {
namespace {

constexpr int64_t kMostEpochs = 1'000'000'000;

absl::Status OutOfRange(std::string_view option, const auto& value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(option, "=", value, ": must be ", allowed));
}

bool IsFactor(double value) { return value > 0 && value <= std::numeric_limits<float>::max(); }

absl::Status CheckMomentum(const TrainerOptions& options) {
  if (!options.momentum.has_value()) return absl::OkStatus();
  const double momentum = *options.momentum;
  if (options.optimizer != "sgd" && options.optimizer != "rmsprop") {
    return absl::InvalidArgumentError(
        absl::StrCat("momentum=", momentum, ": is for sgd and rmsprop, not for ", options.optimizer));
  }
  if (momentum >= 0 && momentum < 1) return absl::OkStatus();
  return OutOfRange("momentum", momentum, "at least 0 and below 1");
}

absl::Status CheckSchedule(const TrainerOptions& options) {
  std::string_view chosen;
  for (const auto& [name, epochs] :
       {std::pair("lr_step_size", options.lr_step_size), std::pair("lr_cosine_epochs", options.lr_cosine_epochs),
        std::pair("lr_warmup_epochs", options.lr_warmup_epochs)}) {
    if (epochs < 0) return OutOfRange(name, epochs, "at least 1, or 0 for a rate that stays");
    if (epochs > kMostEpochs) return OutOfRange(name, epochs, "at most 1000000000");
    if (epochs == 0) continue;
    if (!chosen.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "=", epochs, ": there is a schedule already, ", chosen, "; one at a time"));
    }
    chosen = name;
  }
  const double gamma = options.lr_gamma.value_or(1);
  if (!IsFactor(gamma)) return OutOfRange("lr_gamma", gamma, "more than 0, and finite as a float");
  if (options.lr_gamma.has_value() && options.lr_step_size == 0) {
    return absl::InvalidArgumentError(absl::StrCat("lr_gamma=", gamma, ": means nothing without lr_step_size"));
  }
  return absl::OkStatus();
}

absl::Status CheckOptimizerOptions(const TrainerOptions& options) {
  constexpr std::string_view kNames[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
  if (!absl::c_linear_search(kNames, options.optimizer)) {
    return OutOfRange("optimizer", internal::Printable(options.optimizer), "sgd, adam, adamw, rmsprop or adagrad");
  }
  ABSL_RETURN_IF_ERROR(CheckMomentum(options));
  const double rate = options.learning_rate.value_or(1), norm = options.clip_grad_norm.value_or(1);
  if (!IsFactor(rate)) return OutOfRange("learning_rate", rate, "more than 0, and finite as a float");
  if (!IsFactor(norm)) return OutOfRange("clip_grad_norm", norm, "more than 0, and finite as a float");
  return CheckSchedule(options);
}

absl::Status CheckRetentionOptions(const TrainerOptions& options, absl::Span<const std::string_view> metrics) {
  if (options.keep.value_or(1) < 1) return OutOfRange("keep", *options.keep, "at least 1");
  if (options.keep_best.value_or(1) < 1) return OutOfRange("keep_best", *options.keep_best, "at least 1");
  if (!options.keep_best_metric.has_value()) return absl::OkStatus();
  const std::string& metric = *options.keep_best_metric;
  if (metric != "loss" && !absl::c_linear_search(metrics, metric)) {
    return OutOfRange("keep_best_metric", internal::Printable(metric),
                      absl::StrCat("loss or ", absl::StrJoin(metrics, " or ")));
  }
  if (options.keep_best.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("keep_best_metric=", metric, ": means nothing without keep_best"));
}

absl::Status CheckSaveOptions(const TrainerOptions& options) {
  if (options.checkpoint_dir.empty()) return OutOfRange("checkpoint_dir", "", "the path of a directory");
  if (options.format != "pt" && options.format != "safetensors") {
    return OutOfRange("format", internal::Printable(options.format), "pt or safetensors");
  }
  if (options.save_every < 1) return OutOfRange("save_every", options.save_every, "at least 1");
  if (options.save_every_steps.value_or(1) < 1) {
    return OutOfRange("save_every_steps", *options.save_every_steps, "at least 1");
  }
  if (options.save_every_time.value_or(absl::Seconds(1)) <= absl::ZeroDuration()) {
    return OutOfRange("save_every_time", absl::FormatDuration(*options.save_every_time),
                      "more than 0, for example 90s or 30m");
  }
  if (options.stop_check_every < 1) return OutOfRange("stop_check_every", options.stop_check_every, "at least 1");
  if (options.run_id.size() > 256 || !absl::c_all_of(options.run_id, absl::ascii_isprint)) {
    return OutOfRange("run_id", internal::Printable(options.run_id), "at most 256 printable ASCII characters");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckTrainerOptions(const TrainerOptions& options, absl::Span<const std::string_view> metrics) {
  if (options.epochs < 1 || options.epochs > kMostEpochs) {
    return OutOfRange("epochs", options.epochs, "from 1 to 1000000000");
  }
  if (options.batch_size < 1) return OutOfRange("batch_size", options.batch_size, "at least 1");
  if (options.accumulate < 1) return OutOfRange("accumulate", options.accumulate, "at least 1");
  if (!(options.validation >= 0 && options.validation < 1)) {
    return OutOfRange("validation", options.validation, "at least 0 and below 1");
  }
  if (options.prefetch < 0 || options.prefetch > kMaxTrainerPrefetch) {
    return OutOfRange("prefetch", options.prefetch, absl::StrCat("from 0 to ", kMaxTrainerPrefetch));
  }
  ABSL_RETURN_IF_ERROR(CheckSaveOptions(options));
  ABSL_RETURN_IF_ERROR(CheckRetentionOptions(options, metrics));
  return CheckOptimizerOptions(options);
}

double Gamma(const TrainerOptions& options) { return options.lr_gamma.value_or(0.1); }

std::string ShowTrainerOptions(const TrainerOptions& options) {
  const auto shown = [](const auto& optional) {
    return optional.has_value() ? absl::StrCat(*optional) : std::string("default");
  };
  return absl::StrCat(
      "epochs=", options.epochs, " batch_size=", options.batch_size, " accumulate=", options.accumulate,
      " clip_grad_norm=", shown(options.clip_grad_norm), " optimizer=", options.optimizer,
      " learning_rate=", shown(options.learning_rate), " momentum=", options.momentum.value_or(0),
      " lr_step_size=", options.lr_step_size, " lr_gamma=", Gamma(options),
      " lr_cosine_epochs=", options.lr_cosine_epochs, " lr_warmup_epochs=", options.lr_warmup_epochs,
      " validation=", options.validation, " seed=", options.seed,
      " checkpoint_dir=", internal::Printable(options.checkpoint_dir), " format=", options.format,
      " save_every=", options.save_every, " save_every_steps=", options.save_every_steps.value_or(0),
      " save_every_time=", absl::FormatDuration(options.save_every_time.value_or(absl::ZeroDuration())),
      " save_signals=", absl::StrJoin(options.save_signals, ","),
      " stop_signals=", absl::StrJoin(options.stop_signals, ","), " stop_check_every=", options.stop_check_every,
      " keep=", options.keep.value_or(0), " keep_best=", options.keep_best.value_or(0),
      " keep_best_metric=", options.keep_best_metric.value_or(""), " stop_if_save_fails=", options.stop_if_save_fails,
      " run_id=", options.run_id, " save_report=", internal::Printable(options.save_report),
      " resume=", internal::Printable(ShowResumeFrom(options.resume)));
}

}  // namespace cohort
