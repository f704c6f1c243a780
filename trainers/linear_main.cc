// The program that trains a linear model: `//trainers:linear`. See its --help.

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/csv_dataset.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/generated_dataset.h"
#include "cohort/trainers/data/runfile.h"
#include "cohort/trainers/least_squares.h"
#include "cohort/trainers/linear_trainer.h"
#include "cohort/trainers/linear_trainer_options.h"
#include "cohort/trainers/outcome.h"
#include "cohort/trainers/resume_from.h"
#include "cohort/trainers/typed_path.h"

namespace cohort {

bool AbslParseFlag(std::string_view text, ResumeFrom* flag, std::string* error) {
  absl::StatusOr<ResumeFrom> parsed = ParseResumeFrom(text);
  if (parsed.ok()) *flag = *std::move(parsed);
  *error = parsed.status().message();
  return parsed.ok();
}
std::string AbslUnparseFlag(const ResumeFrom& flag) { return ShowResumeFrom(flag); }

}  // namespace cohort

ABSL_FLAG(std::string, data, "diabetes",
          "What to learn from: \"diabetes\" (442 patients, 10 measurements, one target; comes with the program), "
          "\"generated\", or the path of a CSV file with a header");
ABSL_FLAG(std::vector<std::string>, target, {}, "Columns to predict, separated by commas; default: the last column");
ABSL_FLAG(std::optional<int64_t>, features, std::nullopt, "Number of features of --data=generated; default 10");
ABSL_FLAG(std::optional<int64_t>, outputs, std::nullopt, "Number of targets of --data=generated; default 2");
ABSL_FLAG(int64_t, epochs, cohort::LinearTrainerOptions().epochs,
          "How often every row is used, in all: a resumed run makes what is left of them");
ABSL_FLAG(int64_t, save_every, cohort::LinearTrainerOptions().save_every,
          "Save after epoch 0 and every so many epochs; the last epoch is always saved");
ABSL_FLAG(std::optional<int64_t>, save_every_steps, std::nullopt,
          "Save a checkpoint also after every so many steps, within an epoch as well");
ABSL_FLAG(std::optional<absl::Duration>, save_every_time, std::nullopt,
          "Save a checkpoint also when so much time is over, for example 30m. SIGUSR1, to any rank or to the launcher, "
          "saves one at once");
ABSL_FLAG(std::string, checkpoint_dir, "./checkpoints",
          "The run's directory: checkpoints, as step_N/state.pt, each the whole run; and model_epoch_E.pth, the model "
          "alone. Made if missing. Relative to where you stand, also under `bazel run`");
ABSL_FLAG(std::string, format, cohort::LinearTrainerOptions().format,
          "Of the files: \"pt\", or \"safetensors\" for model_epoch_E.safetensors and state.safetensors");
ABSL_FLAG(std::optional<int64_t>, keep, std::nullopt,
          "Keep so many of the newest checkpoints, and remove older ones; default: all, or 1 with --keep_best. A "
          "checkpoint with a file \"pinned\" in it stays, and so does every model_epoch_E.pth");
ABSL_FLAG(std::optional<int64_t>, keep_best, std::nullopt,
          "Keep so many of the best checkpoints besides. Best are those after whole epochs, by --keep_best_metric");
ABSL_FLAG(std::optional<std::string>, keep_best_metric, std::nullopt,
          "\"loss\": the least of the epoch; \"r2\": the greatest after it; default loss");
ABSL_FLAG(std::string, save_failure, "warn",
          "What a save that fails is. \"warn\": a warning, and the run goes on; if the last one fails it ends with 74. "
          "\"stop\": the end of the run");
ABSL_FLAG(std::string, save_report, "", "A file to which every save of a checkpoint appends a line of JSON");
ABSL_FLAG(std::string, run_id, "",
          "The run's name: its directory must be new or have this one. Default: what the directory has; a new one is "
          "called $TORCHELASTIC_RUN_ID, unless that is none");
ABSL_FLAG(cohort::ResumeFrom, resume, {},
          "What to go on from. \"auto\": the newest checkpoint in --checkpoint_dir, if there is one; \"none\": start "
          "over; a number: the checkpoint of that step there; or the path of a state file of either format, of a "
          "checkpoint's directory, or of a run's. Flags that are not as they were are warned of; the data, --optimizer "
          "and the number of ranks must be the same");
ABSL_FLAG(int64_t, batch_size, cohort::LinearTrainerOptions().batch_size,
          "Rows a step, of all ranks together: the result does not depend on the number of ranks");
ABSL_FLAG(std::string, optimizer, cohort::LinearTrainerOptions().optimizer, "sgd, adam, adamw, rmsprop or adagrad");
ABSL_FLAG(std::optional<double>, momentum, std::nullopt, "Of sgd and rmsprop; default 0");
ABSL_FLAG(std::optional<double>, learning_rate, std::nullopt,
          "Default: of a resumed run the saved one; for sgd 0.5 x (1 - momentum) / (features + 1); for the others the "
          "targets' root mean square x 0.02 (adam, adamw), 0.02 x (1 - momentum) (rmsprop) or 0.5 (adagrad)");
ABSL_FLAG(int64_t, lr_step_size, cohort::LinearTrainerOptions().lr_step_size,
          "After so many epochs, each time, the learning rate is multiplied by --lr_gamma; 0: it stays");
ABSL_FLAG(std::optional<double>, lr_gamma, std::nullopt, "See --lr_step_size; default 0.1");
ABSL_FLAG(uint64_t, seed, 0, "Of the first parameters, the order of the rows, and generated data");
ABSL_FLAG(std::string, backend, "auto", "What the ranks talk through: gloo, nccl, or auto: nccl if every rank can");
ABSL_FLAG(absl::Duration, init_timeout, cohort::InitProcessGroupOptions().init_timeout,
          "How long to wait for the other ranks to come");

namespace cohort {
namespace {

constexpr std::string_view kUsage = R"(fits a linear model, on one rank or on many.

  ./bazelw run --config=launch //trainers:linear             two ranks, the diabetes data
  ./bazelw run --config=launch //trainers:linear             again: already complete
  ./bazelw run --config=launch //trainers:linear -- --epochs=20     goes on to epoch 20
  ./bazelw run //trainers:linear -- --data=my.csv --target=price --checkpoint_dir=price --keep=3

Features are standardized: (x - mean) / deviation over all rows; targets are not. model_epoch_E.pth is the state dict of
Python's torch.nn.Linear, and step_N/state.pt a dict of the whole run after N steps: torch.load(path, weights_only=True).
A run that was stopped, or killed, goes on from its newest checkpoint when it is started again, and makes, bit for bit,
what it would have made without the interruption.

Exit codes: 0 trained, or already complete, and the last checkpoint is on disk; 1 it cannot work as started (flags,
environment, data, paths, another run's directory or state); 69 another rank died or did not come; 70 a bug; 74 the disk
is full or failed, the last save failed, a file is damaged, or there is no memory.)";

LinearTrainerOptions TrainerOptions() {
  LinearTrainerOptions options;
  options.epochs = absl::GetFlag(FLAGS_epochs);
  options.save_every = absl::GetFlag(FLAGS_save_every);
  options.save_every_steps = absl::GetFlag(FLAGS_save_every_steps);
  options.save_every_time = absl::GetFlag(FLAGS_save_every_time);
  options.save_signals = {SIGUSR1};
  options.checkpoint_dir = absl::GetFlag(FLAGS_checkpoint_dir);
  options.format = absl::GetFlag(FLAGS_format);
  options.keep = absl::GetFlag(FLAGS_keep);
  options.keep_best = absl::GetFlag(FLAGS_keep_best);
  options.keep_best_metric = absl::GetFlag(FLAGS_keep_best_metric);
  options.stop_if_save_fails = absl::GetFlag(FLAGS_save_failure) == "stop";
  options.save_report = absl::GetFlag(FLAGS_save_report);
  options.run_id = absl::GetFlag(FLAGS_run_id);
  options.resume = absl::GetFlag(FLAGS_resume);
  options.batch_size = absl::GetFlag(FLAGS_batch_size);
  options.optimizer = absl::GetFlag(FLAGS_optimizer);
  options.momentum = absl::GetFlag(FLAGS_momentum);
  options.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  options.lr_step_size = absl::GetFlag(FLAGS_lr_step_size);
  options.lr_gamma = absl::GetFlag(FLAGS_lr_gamma);
  options.seed = absl::GetFlag(FLAGS_seed);
  return options;
}

absl::Status WrongFlag(std::string_view flag, std::string_view value, std::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", value, ": ", allowed));
}

// Before any socket and any file.
absl::Status CheckFlags(const std::vector<char*>& arguments) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", arguments[1], "\": there are only flags, see --help"));
  }
  const std::string data = absl::GetFlag(FLAGS_data);
  if (data.empty()) return WrongFlag("data", "", "must be diabetes, generated, or the path of a CSV file");
  if (data == "generated" && !absl::GetFlag(FLAGS_target).empty()) {
    return WrongFlag("target", absl::StrJoin(absl::GetFlag(FLAGS_target), ","),
                     "is for CSV files, and not for --data=generated");
  }
  for (const auto& [name, value] :
       {std::pair("features", absl::GetFlag(FLAGS_features)), std::pair("outputs", absl::GetFlag(FLAGS_outputs))}) {
    if (value.has_value() && data != "generated")
      return WrongFlag(name, absl::StrCat(*value), "is for --data=generated only");
    if (value.has_value() && (*value < 1 || *value > kMaxGeneratedValues)) {
      return WrongFlag(name, absl::StrCat(*value), absl::StrCat("must be from 1 to ", kMaxGeneratedValues));
    }
  }
  const std::string backend = absl::GetFlag(FLAGS_backend);
  if (backend != "auto" && backend != "gloo" && backend != "nccl")
    return WrongFlag("backend", backend, "must be auto, gloo or nccl");
  const absl::Duration init_timeout = absl::GetFlag(FLAGS_init_timeout);
  if (init_timeout <= absl::ZeroDuration()) {
    return WrongFlag("init_timeout", absl::FormatDuration(init_timeout), "must be more than 0, for example 30s or 5m");
  }
  const std::string save_failure = absl::GetFlag(FLAGS_save_failure);
  if (save_failure != "warn" && save_failure != "stop")
    return WrongFlag("save_failure", save_failure, "must be warn or stop");
  // The options are named as the flags are.
  const absl::Status valid = CheckLinearTrainerOptions(TrainerOptions());
  return valid.ok() ? valid : absl::InvalidArgumentError(absl::StrCat("--", valid.message()));
}

absl::StatusOr<Dataset> ReadData(std::string_view argv0) {
  const std::string data = absl::GetFlag(FLAGS_data);
  if (data == "generated") {
    GeneratedDatasetOptions options;
    options.num_features = absl::GetFlag(FLAGS_features).value_or(options.num_features);
    options.num_targets = absl::GetFlag(FLAGS_outputs).value_or(options.num_targets);
    options.seed = absl::GetFlag(FLAGS_seed);
    return GenerateDataset(options);
  }
  std::string path = TypedPath(data);
  if (data == "diabetes") {
    ABSL_ASSIGN_OR_RETURN(path, LocateRunfile(argv0, COHORT_DIABETES_CSV));
  }
  return ReadCsvDataset(path, absl::GetFlag(FLAGS_target));
}

// Writes to stdout on the main rank, at once: somebody may be watching through a pipe.
template <typename... Args>
void Print(const ProcessGroup& group, const absl::FormatSpec<Args...>& format, const Args&... args) {
  if (!group.is_main()) return;
  absl::PrintF(format, args...);
  std::fflush(stdout);
}

// The same with a warning, to stderr.
void Warn(const ProcessGroup& group, std::string_view warning) {
  if (!group.is_main()) return;
  absl::FPrintF(stderr, "warning: %s\n", internal::Printable(warning));
  std::fflush(stderr);
}

std::string ShownR2(double r2) {
  return std::isnan(r2) ? "undefined (the target is constant)" : absl::StrFormat("%.5f", r2);
}

void PrintStart(const ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options) {
  Print(group, "data     %d rows from %s\n", data.num_rows, internal::Printable(data.source));
  Print(group, "model    Linear(%d, %d): %s -> %s\n", data.num_features(), data.num_targets(),
        internal::Printable(absl::StrJoin(data.feature_names, " ")),
        internal::Printable(absl::StrJoin(data.target_names, " ")));
  Print(group, "job      %d %s, backend %s; %d rows a step in all; %s\n", group.world_size(),
        group.world_size() == 1 ? "rank" : "ranks", group.backend_name(), std::min(options.batch_size, data.num_rows),
        options.optimizer);
}

// Resumed "after epoch 4, step 70", or within an epoch "after epoch 4 and 64 rows, step 72".
void PrintBegin(const ProcessGroup& group, const BeginReport& begun) {
  if (begun.resumed_from.empty()) {
    Print(group, "started  learning rate %.4g\n", begun.learning_rate);
    return;
  }
  const std::string epoch = begun.epochs > 0 ? absl::StrCat("epoch ", begun.epochs - 1) : "";
  const std::string rows = begun.rows_done > 0 ? absl::StrCat(begun.rows_done, " rows") : "";
  Print(group, "resumed  %s  after %s%s%s, step %d; learning rate %.4g\n", begun.resumed_from, epoch,
        epoch.empty() || rows.empty() ? "" : " and ", rows, begun.step, begun.learning_rate);
  if (!begun.changes.empty()) {
    Warn(group, absl::StrCat("not as it was saved: ", absl::StrJoin(begun.changes, "; ")));
  }
}

void PrintSave(const ProcessGroup& group, std::string_view path, int64_t num_bytes, absl::Duration blocked) {
  Print(group, "saved    %s  %d bytes in %s\n", path, num_bytes,
        absl::FormatDuration(absl::Trunc(blocked, absl::Microseconds(100))));
}

// The fit beside the best one there is, where that is found in a moment.
void PrintFit(const ProcessGroup& group, const Dataset& data, const EpochReport& last) {
  if (!group.is_main()) return;
  std::string best;
  const double work = static_cast<double>(data.num_rows) * std::pow(static_cast<double>(data.num_features()), 2);
  if (work < 1e9 && !std::isnan(last.r2)) {
    const absl::StatusOr<double> error = LeastSquaresError(data);
    if (error.ok())
      best = absl::StrFormat("; least squares, the best there is: %s", ShownR2(1 - *error / TargetVariation(data)));
  }
  Print(group, "fit      R2 %s%s\n", ShownR2(last.r2), best);
}

absl::Status Train(ProcessGroup& group, std::string_view argv0) {
  const LinearTrainerOptions options = TrainerOptions();
  ABSL_ASSIGN_OR_RETURN(const Dataset data, AgreeOnDataset(group, ReadData(argv0)));
  PrintStart(group, data, options);
  LinearTrainerObserver observer;
  observer.on_begin = [&](const BeginReport& begun) { PrintBegin(group, begun); };
  observer.on_epoch = [&](const EpochReport& epoch) {
    Print(group, "epoch %-3d loss %.6f  R2 %s\n", epoch.epoch, epoch.loss, ShownR2(epoch.r2));
  };
  observer.on_export = [&](const SaveReport& saved) { PrintSave(group, saved.path, saved.num_bytes, saved.blocked); };
  observer.on_checkpoint = [&](const CheckpointReport& saved) {
    PrintSave(group, saved.checkpoint.path, saved.num_bytes, saved.blocked);
  };
  observer.on_warning = [&](std::string_view warning) { Warn(group, warning); };
  ABSL_ASSIGN_OR_RETURN(const LinearTrainerOutcome outcome, TrainLinear(group, data, options, observer));
  if (outcome.was_complete) {
    Print(group, "already complete: epoch %d of %d in %s; --resume=none starts over\n", outcome.epochs_done,
          options.epochs, outcome.directory);
    return absl::OkStatus();
  }
  PrintFit(group, data, outcome.last);
  return absl::OkStatus();
}

absl::Status Run(const std::vector<char*>& arguments) {
  absl::Status status = CheckFlags(arguments);
  std::unique_ptr<ProcessGroup> group;
  if (status.ok()) {
    InitProcessGroupOptions options;
    options.backend = absl::GetFlag(FLAGS_backend);
    options.init_timeout = absl::GetFlag(FLAGS_init_timeout);
    absl::StatusOr<std::unique_ptr<ProcessGroup>> connected = InitProcessGroup(options);
    status = connected.status();
    if (connected.ok()) group = *std::move(connected);
  }
  if (group == nullptr) {
    ReportError(status);
    return status;
  }
  status = Train(*group, arguments[0]);
  if (!status.ok()) ReportError(*group, status);
  const absl::Status left = group->Shutdown();
  if (status.ok() && !left.ok()) ReportError(left);
  return status.ok() ? left : status;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) {
  // A limit on the size of files is then an error of the save, which names the file, and not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // Before there is something to save, and afterwards, the wish for a save must not end the process either.
  std::signal(SIGUSR1, SIG_IGN);
  absl::SetProgramUsageMessage(cohort::kUsage);
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  return cohort::ExitCodeOf(cohort::Run(arguments));
}
