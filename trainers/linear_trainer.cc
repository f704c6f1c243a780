#include "cohort/trainers/linear_trainer.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/checkpoint/module_state.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/agree_on_same.h"
#include "cohort/trainers/checkpointing.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/linear_trainer_options.h"
#include "cohort/trainers/linear_training.h"
#include "cohort/trainers/resume_from.h"

namespace cohort {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// What all ranks must have in common of the data.
absl::StatusOr<std::string> Describe(const absl::StatusOr<Dataset>& data, int num_ranks) {
  ABSL_RETURN_IF_ERROR(data.status());
  if (data->num_rows < num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat(data->source, ": ", data->num_rows, " rows are too few for ",
                                                   num_ranks, " ranks; there must be at least one for each"));
  }
  return absl::StrCat(data->num_rows, " rows of ", data->num_features(), " features and ", data->num_targets(),
                      " targets with checksum ", absl::Hex(Checksum(*data), absl::kZeroPad8), ", from ", data->source);
}

RetentionPolicy RetentionOf(const LinearTrainerOptions& options) {
  RetentionPolicy policy{.newest = options.keep};
  if (!options.keep_best.has_value()) return policy;
  if (!policy.newest.has_value()) policy.newest = 1;
  const bool by_r2 = options.keep_best_metric == "r2";
  policy.best.push_back({.metric = by_r2 ? "r2" : "loss",
                         .order = by_r2 ? KeepBest::Order::kGreatest : KeepBest::Order::kLeast,
                         .count = *options.keep_best});
  return policy;
}

// Nobody asked for this checkpoint: so it is said what to do if it is the wrong one.
absl::Status WithWayOut(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status) && !absl::IsDataLoss(status)) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; --resume=none starts over"));
}

// A run: the training, and what is kept of it.
class Run {
 public:
  Run(ProcessGroup& group, const Dataset& data, const LinearTrainerOptions& options,
      const LinearTrainerObserver& observer)
      : group_(group), data_(data), options_(options), observer_(observer), training_(group, data, options) {}

  // Collective. Makes the model, or goes on with one.
  absl::Status Begin();

  // Collective. Makes the epochs that are left.
  absl::StatusOr<LinearTrainerOutcome> Train();

 private:
  absl::Status OpenDirectory();
  void ReportBegin(std::string from);
  // Collective. What is left of the epoch that has begun, with the saves within it. True if a save is due at its end.
  absl::StatusOr<bool> TrainEpoch();
  absl::Status SaveEpoch(const EpochReport& epoch, bool is_due);
  absl::Status SaveCheckpoint(double loss, double r2);

  std::string Suffix(std::string_view of_pt) const {
    return absl::StrCat(options_.format == "pt" ? of_pt : ".safetensors");
  }

  ProcessGroup& group_;
  const Dataset& data_;
  const LinearTrainerOptions& options_;
  const LinearTrainerObserver& observer_;
  LinearTraining training_;
  std::unique_ptr<Checkpointing> checkpointing_;
  std::vector<std::string> changes_;  // of what was loaded
};

absl::Status Run::Begin() {
  ABSL_RETURN_IF_ERROR(training_.Begin());
  const auto load = [&](std::string_view path) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(changes_, training_.Load(path));
    return absl::OkStatus();
  };
  const ResumeFrom& from = options_.resume;
  if (from.kind == ResumeFrom::Kind::kPath) {
    ABSL_ASSIGN_OR_RETURN(const std::string file, Checkpointing::LoadFrom(group_, from.path, load));
    if (training_.epochs_done() >= options_.epochs) {
      return absl::InvalidArgumentError(absl::StrCat(internal::Quoted(file), " has ", training_.epochs_done(),
                                                     " epochs done already, and epochs=", options_.epochs,
                                                     " are to be made in all; ask for more"));
    }
    ABSL_RETURN_IF_ERROR(OpenDirectory());
    ReportBegin(file);
    return absl::OkStatus();
  }
  ABSL_RETURN_IF_ERROR(OpenDirectory());
  absl::StatusOr<std::optional<std::string>> loaded = checkpointing_->Resume(from, load);
  if (!loaded.ok()) return from.kind == ResumeFrom::Kind::kAuto ? WithWayOut(loaded.status()) : loaded.status();
  if (training_.epochs_done() < options_.epochs) ReportBegin(loaded->value_or(""));
  return absl::OkStatus();
}

absl::Status Run::OpenDirectory() {
  CheckpointingOptions options{.manager = {.directory = options_.checkpoint_dir,
                                           .run_id = options_.run_id,
                                           .model = ModelSignature(training_.model()),
                                           .retention = RetentionOf(options_),
                                           .report_path = options_.save_report,
                                           .on_warning = observer_.on_warning},
                               .trigger = {.every_steps = options_.save_every_steps,
                                           .every = options_.save_every_time,
                                           .signals = options_.save_signals},
                               .stop_if_save_fails = options_.stop_if_save_fails};
  ABSL_ASSIGN_OR_RETURN(checkpointing_, Checkpointing::Open(&group_, std::move(options)));
  return absl::OkStatus();
}

void Run::ReportBegin(std::string from) {
  if (!observer_.on_begin) return;
  observer_.on_begin({.resumed_from = std::move(from),
                      .epochs = training_.epochs_done(),
                      .rows_done = training_.rows_done(),
                      .step = training_.steps_done(),
                      .learning_rate = training_.learning_rate(),
                      .changes = changes_});
}

absl::StatusOr<LinearTrainerOutcome> Run::Train() {
  LinearTrainerOutcome outcome{.was_complete = training_.epochs_done() >= options_.epochs,
                               .directory = checkpointing_->directory()};
  const double variation = TargetVariation(data_);
  while (training_.epochs_done() < options_.epochs) {
    EpochReport& epoch = outcome.last;
    epoch.epoch = training_.epochs_done();
    ABSL_ASSIGN_OR_RETURN(const bool is_due, TrainEpoch());
    ABSL_ASSIGN_OR_RETURN(epoch.loss, training_.EndEpoch());
    ABSL_ASSIGN_OR_RETURN(const double error, training_.TotalError());
    epoch.r2 = variation > 0 ? 1 - error / variation : kUnknown;
    if (observer_.on_epoch) observer_.on_epoch(epoch);
    ABSL_RETURN_IF_ERROR(SaveEpoch(epoch, is_due));
  }
  outcome.epochs_done = training_.epochs_done();
  outcome.failed_saves = checkpointing_->num_failures();
  if (const absl::Status& last = checkpointing_->last_outcome(); !last.ok()) {
    return absl::DataLossError(
        absl::StrCat("all ", outcome.epochs_done, " epochs are trained, but the last save failed: ", last.message()));
  }
  return outcome;
}

absl::StatusOr<bool> Run::TrainEpoch() {
  while (true) {
    ABSL_RETURN_IF_ERROR(training_.Step());
    ABSL_ASSIGN_OR_RETURN(const bool is_due, checkpointing_->IsDue(training_.steps_done()));
    if (training_.is_at_end_of_epoch()) return is_due;
    if (is_due) {
      ABSL_RETURN_IF_ERROR(training_.CheckLastStep());
      ABSL_RETURN_IF_ERROR(SaveCheckpoint(kUnknown, kUnknown));
    }
  }
}

// The model goes first: a run that is resumed from the checkpoint does not come to this epoch again.
absl::Status Run::SaveEpoch(const EpochReport& epoch, bool is_due) {
  const bool is_planned = epoch.epoch % options_.save_every == 0 || epoch.epoch == options_.epochs - 1;
  if (is_planned) {
    ABSL_ASSIGN_OR_RETURN(const std::optional<SaveReport> model,
                          checkpointing_->Export(absl::StrCat("model_epoch_", epoch.epoch, Suffix(".pth")),
                                                 [&](WritableFile& file) { return training_.WriteModel(file); }));
    if (model.has_value() && observer_.on_export) observer_.on_export(*model);
  }
  return is_planned || is_due ? SaveCheckpoint(epoch.loss, epoch.r2) : absl::OkStatus();
}

absl::Status Run::SaveCheckpoint(double loss, double r2) {
  const absl::StatusOr<Checkpointing::Payload> state = training_.GatherState("state");
  ABSL_ASSIGN_OR_RETURN(const std::optional<CheckpointReport> saved,
                        checkpointing_->Save({.step = training_.steps_done(), .metrics = {{"loss", loss}, {"r2", r2}}},
                                             absl::StrCat("state", Suffix(".pt")), state));
  if (saved.has_value() && observer_.on_checkpoint) observer_.on_checkpoint(*saved);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Dataset> AgreeOnDataset(ProcessGroup& group, absl::StatusOr<Dataset> mine) {
  ABSL_RETURN_IF_ERROR(AgreeOnSame(group, "data", Describe(mine, group.world_size())));
  mine->checksum = Checksum(*mine);
  StandardizeFeatures(*mine);
  return mine;
}

absl::StatusOr<LinearTrainerOutcome> TrainLinear(ProcessGroup& group, const Dataset& data,
                                                 const LinearTrainerOptions& options,
                                                 const LinearTrainerObserver& observer) {
  const absl::Status valid = CheckLinearTrainerOptions(options);
  ABSL_RETURN_IF_ERROR(AgreeOnSame(
      group, "training", valid.ok() ? absl::StatusOr<std::string>(ShowLinearTrainerOptions(options, data)) : valid));
  Run run(group, data, options, observer);
  ABSL_RETURN_IF_ERROR(run.Begin());
  return run.Train();
}

}  // namespace cohort
