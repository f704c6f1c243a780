// Optional durations compile as flags only if Abseil's flags are included before its time.
// clang-format off
#include "absl/flags/flag.h"
// clang-format on

#include "cohort/trainers/trainer_flags.h"

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/trainers/resume_from.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {

bool AbslParseFlag(std::string_view text, ResumeFrom* flag, std::string* error) {
  absl::StatusOr<ResumeFrom> parsed = ParseResumeFrom(text);
  if (parsed.ok()) *flag = *std::move(parsed);
  *error = parsed.status().message();
  return parsed.ok();
}
std::string AbslUnparseFlag(const ResumeFrom& flag) { return ShowResumeFrom(flag); }

}  // namespace cohort

ABSL_FLAG(std::string, data, "",
          "What to learn from: one of the names above, the path of a CSV file with a header, or that of a .safetensors "
          "file with \"features\" and \"targets\", which is read as it is needed and may be larger than the memory");
ABSL_FLAG(std::vector<std::string>, target, {},
          "Columns of a CSV file to predict, separated by commas; default: the last column");
ABSL_FLAG(double, validation, cohort::TrainerOptions().validation,
          "The share of the rows to hold out, at least 0 and below 1: metrics are of these, which nothing is learned "
          "from. The same rows in every run; 0: metrics are of all rows");
ABSL_FLAG(int64_t, epochs, cohort::TrainerOptions().epochs,
          "How often every row is used, in all: a resumed run makes what is left of them");
ABSL_FLAG(int64_t, save_every, cohort::TrainerOptions().save_every,
          "Save after epoch 0 and every so many epochs; the last epoch is always saved");
ABSL_FLAG(std::optional<int64_t>, save_every_steps, std::nullopt,
          "Save a checkpoint also after every so many steps, within an epoch as well");
ABSL_FLAG(std::optional<absl::Duration>, save_every_time, std::nullopt,
          "Save a checkpoint also when so much time is over, for example 30m. SIGUSR2, to any rank or to the launcher, "
          "saves one too");
ABSL_FLAG(
    int64_t, stop_check_every, cohort::TrainerOptions().stop_check_every,
    "SIGTERM or SIGUSR1, to any rank or to the launcher, saves a checkpoint and ends the run with 75. After every "
    "so many steps the ranks ask each other whether one has come, or SIGUSR2, or the time");
ABSL_FLAG(std::string, checkpoint_dir, "./checkpoints",
          "The run's directory: checkpoints, as step_N/state.pt, each the whole run; and model_epoch_E.pth, the model "
          "alone. Made if missing. Relative to where you stand, also under `bazel run`");
ABSL_FLAG(std::string, format, cohort::TrainerOptions().format,
          "Of the files: \"pt\", or \"safetensors\" for model_epoch_E.safetensors and state.safetensors");
ABSL_FLAG(std::optional<int64_t>, keep, std::nullopt,
          "Keep so many of the newest checkpoints, and remove older ones; default: all, or 1 with --keep_best. A "
          "checkpoint with a file \"pinned\" in it stays, and so does every model_epoch_E.pth");
ABSL_FLAG(std::optional<int64_t>, keep_best, std::nullopt,
          "Keep so many of the best checkpoints besides. Best are those after whole epochs, by --keep_best_metric");
ABSL_FLAG(std::optional<std::string>, keep_best_metric, std::nullopt,
          "\"loss\": the least of the epoch; or the name of the metric above: the best after it; default loss");
ABSL_FLAG(std::string, save_failure, "warn",
          "What a save that fails is. \"warn\": a warning, and the run goes on; if the last one fails it ends with 74. "
          "\"stop\": the end of the run");
ABSL_FLAG(std::string, save_report, "", "A file to which every save of a checkpoint appends a line of JSON");
ABSL_FLAG(std::string, metrics_report, "", "A file to which every epoch appends a line of JSON");
ABSL_FLAG(std::string, run_id, "",
          "The run's name: its directory must be new or have this one. Default: what the directory has; a new one is "
          "called $TORCHELASTIC_RUN_ID, unless that is none");
ABSL_FLAG(cohort::ResumeFrom, resume, {},
          "What to go on from. \"auto\": the newest checkpoint in --checkpoint_dir, if there is one; \"none\": start "
          "over; a number: the checkpoint of that step there; or the path of a state file of either format, of a "
          "checkpoint's directory, or of a run's. Flags that are not as they were, and another number of ranks, are "
          "warned of; the data, --validation and --optimizer must be the same");
ABSL_FLAG(int64_t, batch_size, cohort::TrainerOptions().batch_size,
          "Rows a step, of all ranks together: the result does not depend on the number of ranks");
ABSL_FLAG(int64_t, accumulate, cohort::TrainerOptions().accumulate,
          "Work off each step's rows in so many parts, one after the other: less memory, the same step");
ABSL_FLAG(std::optional<double>, clip_grad_norm, std::nullopt,
          "Cut the gradients' length, all parameters together, down to this before each step");
ABSL_FLAG(std::string, optimizer, cohort::TrainerOptions().optimizer, "sgd, adam, adamw, rmsprop or adagrad");
ABSL_FLAG(std::optional<double>, momentum, std::nullopt, "Of sgd and rmsprop; default 0");
ABSL_FLAG(std::optional<double>, learning_rate, std::nullopt,
          "If it is not given: of a resumed run the saved one; of a new one see above");
ABSL_FLAG(int64_t, lr_step_size, cohort::TrainerOptions().lr_step_size,
          "After so many epochs, each time, the learning rate is multiplied by --lr_gamma; 0: it stays");
ABSL_FLAG(std::optional<double>, lr_gamma, std::nullopt, "See --lr_step_size; default 0.1");
ABSL_FLAG(int64_t, lr_cosine_epochs, cohort::TrainerOptions().lr_cosine_epochs,
          "Instead of --lr_step_size: the learning rate goes down to 0 in so many epochs, as half a cosine");
ABSL_FLAG(int64_t, lr_warmup_epochs, cohort::TrainerOptions().lr_warmup_epochs,
          "Instead of --lr_step_size: the learning rate begins with a tenth and goes up linearly in so many epochs");
ABSL_FLAG(uint64_t, seed, 0,
          "Of the first parameters, the order of the rows, the ranks' random numbers, and generated data");
ABSL_FLAG(int, prefetch, cohort::TrainerOptions().prefetch,
          "Steps whose rows are read ahead in the background; 0: none");
ABSL_FLAG(std::string, backend, "auto", "What the ranks talk through: gloo, nccl, or auto: nccl if every rank can");
ABSL_FLAG(absl::Duration, init_timeout, cohort::InitProcessGroupOptions().init_timeout,
          "How long to wait for the other ranks to come");

namespace cohort {

absl::Status WrongFlag(std::string_view name, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("--", name, "=", internal::Printable(value), ": ", allowed));
}

void SetFlagDefaults(const TrainerOptions& defaults, std::string_view data) {
  absl::SetFlag(&FLAGS_data, std::string(data));
  absl::SetFlag(&FLAGS_epochs, defaults.epochs);
  absl::SetFlag(&FLAGS_batch_size, defaults.batch_size);
  absl::SetFlag(&FLAGS_optimizer, defaults.optimizer);
  absl::SetFlag(&FLAGS_validation, defaults.validation);
}

std::string DataFlag() { return absl::GetFlag(FLAGS_data); }

std::vector<std::string> TargetFlag() { return absl::GetFlag(FLAGS_target); }

std::string MetricsReportFlag() { return absl::GetFlag(FLAGS_metrics_report); }

TrainerOptions OptionsFromFlags() {
  TrainerOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.accumulate = absl::GetFlag(FLAGS_accumulate);
  options.clip_grad_norm = absl::GetFlag(FLAGS_clip_grad_norm);
  options.optimizer = absl::GetFlag(FLAGS_optimizer);
  options.momentum = absl::GetFlag(FLAGS_momentum);
  options.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  options.lr_step_size = absl::GetFlag(FLAGS_lr_step_size);
  options.lr_gamma = absl::GetFlag(FLAGS_lr_gamma);
  options.lr_cosine_epochs = absl::GetFlag(FLAGS_lr_cosine_epochs);
  options.lr_warmup_epochs = absl::GetFlag(FLAGS_lr_warmup_epochs);
  options.validation = absl::GetFlag(FLAGS_validation);
  options.seed = absl::GetFlag(FLAGS_seed);
  options.prefetch = absl::GetFlag(FLAGS_prefetch);
  options.checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
  options.format = absl::GetFlag(FLAGS_format);
  options.save_every = absl::GetFlag(FLAGS_save_every);
  options.save_every_steps = absl::GetFlag(FLAGS_save_every_steps);
  options.save_every_time = absl::GetFlag(FLAGS_save_every_time);
  options.save_signals = {SIGUSR2};
  options.stop_signals = {SIGTERM, SIGUSR1};
  options.stop_check_every = absl::GetFlag(FLAGS_stop_check_every);
  options.keep = absl::GetFlag(FLAGS_keep);
  options.keep_best = absl::GetFlag(FLAGS_keep_best);
  options.keep_best_metric = absl::GetFlag(FLAGS_keep_best_metric);
  options.stop_if_save_fails = absl::GetFlag(FLAGS_save_failure) == "stop";
  options.save_report = absl::GetFlag(FLAGS_save_report);
  options.run_id = absl::GetFlag(FLAGS_run_id);
  options.resume = absl::GetFlag(FLAGS_resume);
  return options;
}

InitProcessGroupOptions GroupOptionsFromFlags() {
  InitProcessGroupOptions options;
  options.backend = absl::GetFlag(FLAGS_backend);
  options.init_timeout = absl::GetFlag(FLAGS_init_timeout);
  return options;
}

absl::Status CheckFlags(const std::vector<char*>& arguments, absl::Span<const std::string_view> metrics) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("unexpected argument \"", internal::Printable(arguments[1]),
                                                   "\": there are only flags, see --help"));
  }
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend != "auto" && backend != "gloo" && backend != "nccl") {
    return WrongFlag("backend", backend, "must be auto, gloo or nccl");
  }
  const absl::Duration init_timeout = absl::GetFlag(FLAGS_init_timeout);
  if (init_timeout <= absl::ZeroDuration()) {
    return WrongFlag("init_timeout", absl::FormatDuration(init_timeout), "must be more than 0, for example 30s or 5m");
  }
  const std::string save_failure = absl::GetFlag(FLAGS_save_failure);
  if (save_failure != "warn" && save_failure != "stop") {
    return WrongFlag("save_failure", save_failure, "must be warn or stop");
  }
  // The options are named as the flags are.
  const absl::Status valid = CheckTrainerOptions(OptionsFromFlags(), metrics);
  return valid.ok() ? valid : absl::InvalidArgumentError(absl::StrCat("--", valid.message()));
}

}  // namespace cohort
