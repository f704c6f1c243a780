#include "cohort/trainers/linear_trainer_options.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {
namespace {

absl::Status OutOfRange(std::string_view option, const auto& value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(option, "=", value, ": must be ", allowed));
}

bool IsFactor(double value) { return value > 0 && value <= std::numeric_limits<float>::max(); }

double RootMeanSquare(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return squares > 0 ? std::sqrt(squares / static_cast<double>(values.size())) : 1;
}

absl::Status CheckOptimizerOptions(const LinearTrainerOptions& options) {
  constexpr std::string_view kPositive = "more than 0, and finite as a float";
  constexpr std::string_view kNames[] = {"sgd", "adam", "adamw", "rmsprop", "adagrad"};
  if (!absl::c_linear_search(kNames, options.optimizer)) {
    return OutOfRange("optimizer", options.optimizer, "sgd, adam, adamw, rmsprop or adagrad");
  }
  if (options.momentum.has_value()) {
    const double momentum = *options.momentum;
    if (options.optimizer != "sgd" && options.optimizer != "rmsprop") {
      return absl::InvalidArgumentError(
          absl::StrCat("momentum=", momentum, ": is for sgd and rmsprop, not for ", options.optimizer));
    }
    if (!(momentum >= 0 && momentum < 1)) return OutOfRange("momentum", momentum, "at least 0 and below 1");
  }
  const double rate = options.learning_rate.value_or(1), gamma = options.lr_gamma.value_or(1);
  if (!IsFactor(rate)) return OutOfRange("learning_rate", rate, kPositive);
  if (options.lr_step_size < 0) {
    return OutOfRange("lr_step_size", options.lr_step_size, "at least 1, or 0 for a rate that stays");
  }
  if (!IsFactor(gamma)) return OutOfRange("lr_gamma", gamma, kPositive);
  if (options.lr_gamma.has_value() && options.lr_step_size == 0) {
    return absl::InvalidArgumentError(absl::StrCat("lr_gamma=", gamma, ": means nothing without lr_step_size"));
  }
  return absl::OkStatus();
}

absl::Status CheckRetentionOptions(const LinearTrainerOptions& options) {
  if (options.keep.value_or(1) < 1) return OutOfRange("keep", *options.keep, "at least 1");
  if (options.keep_best.value_or(1) < 1) return OutOfRange("keep_best", *options.keep_best, "at least 1");
  if (!options.keep_best_metric.has_value()) return absl::OkStatus();
  const std::string& metric = *options.keep_best_metric;
  if (metric != "loss" && metric != "r2") {
    return OutOfRange("keep_best_metric", internal::Printable(metric), "loss or r2");
  }
  if (options.keep_best.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("keep_best_metric=", metric, ": means nothing without keep_best"));
}

absl::Status CheckSaveOptions(const LinearTrainerOptions& options) {
  if (options.checkpoint_dir.empty()) return OutOfRange("checkpoint_dir", "", "the path of a directory");
  if (options.format != "pt" && options.format != "safetensors") {
    return OutOfRange("format", options.format, "pt or safetensors");
  }
  if (options.save_every < 1) return OutOfRange("save_every", options.save_every, "at least 1");
  if (options.save_every_steps.value_or(1) < 1) {
    return OutOfRange("save_every_steps", *options.save_every_steps, "at least 1");
  }
  if (options.save_every_time.value_or(absl::Seconds(1)) <= absl::ZeroDuration()) {
    return OutOfRange("save_every_time", absl::FormatDuration(*options.save_every_time),
                      "more than 0, for example 90s or 30m");
  }
  if (options.run_id.size() > 256 || !absl::c_all_of(options.run_id, absl::ascii_isprint)) {
    return OutOfRange("run_id", internal::Printable(options.run_id), "at most 256 printable ASCII characters");
  }
  return CheckRetentionOptions(options);
}

}  // namespace

absl::Status CheckLinearTrainerOptions(const LinearTrainerOptions& options) {
  constexpr int64_t kMost = 1'000'000'000;
  if (options.epochs < 1 || options.epochs > kMost) return OutOfRange("epochs", options.epochs, "from 1 to 1000000000");
  if (options.batch_size < 1) return OutOfRange("batch_size", options.batch_size, "at least 1");
  ABSL_RETURN_IF_ERROR(CheckSaveOptions(options));
  return CheckOptimizerOptions(options);
}

double LearningRate(const LinearTrainerOptions& options, const Dataset& data) {
  if (options.learning_rate.has_value()) return *options.learning_rate;
  const double fresh = 1 - options.momentum.value_or(0);
  if (options.optimizer == "sgd") return 0.5 * fresh / static_cast<double>(data.num_features() + 1);
  const double scale = RootMeanSquare(data.targets);
  if (options.optimizer == "rmsprop") return 0.02 * fresh * scale;
  return (options.optimizer == "adagrad" ? 0.5 : 0.02) * scale;
}

double WeightDecay(const Dataset& data) { return 0.01 / RootMeanSquare(data.targets); }

double Gamma(const LinearTrainerOptions& options) { return options.lr_gamma.value_or(0.1); }

std::string ShowLinearTrainerOptions(const LinearTrainerOptions& options, const Dataset& data) {
  return absl::StrCat("epochs=", options.epochs, " batch_size=", options.batch_size, " optimizer=", options.optimizer,
                      " learning_rate=", LearningRate(options, data),
                      options.learning_rate.has_value() ? "" : " (default)", " momentum=", options.momentum.value_or(0),
                      " lr_step_size=", options.lr_step_size, " lr_gamma=", Gamma(options), " seed=", options.seed,
                      " checkpoint_dir=", internal::Printable(options.checkpoint_dir), " format=", options.format,
                      " save_every=", options.save_every, " save_every_steps=", options.save_every_steps.value_or(0),
                      " save_every_time=", absl::FormatDuration(options.save_every_time.value_or(absl::ZeroDuration())),
                      " save_signals=", absl::StrJoin(options.save_signals, ","), " keep=", options.keep.value_or(0),
                      " keep_best=", options.keep_best.value_or(0),
                      " keep_best_metric=", options.keep_best_metric.value_or(""),
                      " stop_if_save_fails=", options.stop_if_save_fails, " run_id=", options.run_id,
                      " save_report=", internal::Printable(options.save_report),
                      " resume=", internal::Printable(ShowResumeFrom(options.resume)));
}

}  // namespace cohort
