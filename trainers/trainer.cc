#include "cohort/trainers/trainer.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
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
#include "cohort/checkpoint/save_trigger.h"
#include "cohort/checkpoint/writable_file.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/agree_on_same.h"
#include "cohort/trainers/checkpointing.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/resume_from.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer_options.h"
#include "cohort/trainers/training.h"

namespace cohort {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// What all ranks must have in common of the data.
absl::StatusOr<std::string> Describe(const absl::StatusOr<const RowSource*>& mine, int num_ranks) {
  ABSL_RETURN_IF_ERROR(mine.status());
  const RowSourceInfo& data = (*mine)->info();
  if (data.num_rows < num_ranks) {
    return absl::InvalidArgumentError(absl::StrCat(internal::Printable(data.name), ": ", data.num_rows,
                                                   " rows are too few for ", num_ranks,
                                                   " ranks; there must be at least one for each"));
  }
  return absl::StrCat(data.num_rows, " rows of features ", data.features.ToString(), " and targets ",
                      data.targets.ToString(), " with checksum ", absl::Hex(data.checksum, absl::kZeroPad8), ", from ",
                      internal::Printable(data.name));
}

std::vector<std::string_view> NamesOf(absl::Span<const TaskMetric> metrics) {
  std::vector<std::string_view> names;
  for (const TaskMetric& metric : metrics) names.push_back(metric.name);
  return names;
}

RetentionPolicy RetentionOf(const TrainerOptions& options, absl::Span<const TaskMetric> metrics) {
  RetentionPolicy policy{.newest = options.keep};
  if (!options.keep_best.has_value()) return policy;
  if (!policy.newest.has_value()) policy.newest = 1;
  KeepBest best{.metric = options.keep_best_metric.value_or("loss"), .count = *options.keep_best};
  best.order = KeepBest::Order::kLeast;
  for (const TaskMetric& metric : metrics) {
    if (metric.name == best.metric && metric.is_best_when_greatest) best.order = KeepBest::Order::kGreatest;
  }
  policy.best.push_back(std::move(best));
  return policy;
}

absl::Status WithWayOut(const absl::Status& status, std::string_view way_out) {
  return absl::Status(status.code(), absl::StrCat(status.message(), "; ", way_out));
}

// A run: the training, and what is kept of it.
class Run {
 public:
  Run(ProcessGroup& group, const RowSource& rows, Task& task, const TrainerOptions& options,
      const TrainerObserver& observer)
      : group_(group),
        task_(task),
        options_(options),
        observer_(observer),
        training_(group, rows, task, options),
        unknown_(task.metrics().size(), kUnknown) {}

  // Collective. Makes the model, or goes on with one.
  absl::Status Begin();

  // Collective. Makes the epochs that are left, or as many as it may.
  absl::StatusOr<TrainerOutcome> Train();

 private:
  absl::Status OpenDirectory();
  void ReportBegin(std::string from);
  void ReportStep();
  // Collective. What is left of the epoch that has begun, with the saves within it. What is due then: at the end of the
  // epoch, or within it after a stop.
  absl::StatusOr<SaveDecision> TrainEpoch();
  // Collective. The end of an epoch, with its saves.
  absl::Status EndEpoch(EpochReport& epoch, SaveDecision due);
  absl::Status SaveCheckpoint(double loss, const std::vector<double>& metrics);
  // The outcome, or that its last save failed.
  absl::StatusOr<TrainerOutcome> Ended(TrainerOutcome outcome) const;

  std::string Suffix(std::string_view of_pt) const {
    return absl::StrCat(options_.format == "pt" ? of_pt : ".safetensors");
  }

  ProcessGroup& group_;
  Task& task_;
  const TrainerOptions& options_;
  const TrainerObserver& observer_;
  Training training_;
  const std::vector<double> unknown_;  // metrics within an epoch
  std::unique_ptr<Checkpointing> checkpointing_;
  std::vector<std::string> changes_;  // of what was loaded
};

absl::Status Run::Begin() {
  ABSL_RETURN_IF_ERROR(training_.Begin());
  const auto load = [&](std::string_view path) -> absl::Status {
    ABSL_ASSIGN_OR_RETURN(changes_, training_.Load(path, observer_.on_warning));
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
  // Nobody asked for the checkpoint that is found: so it is said what to do if it is the wrong one.
  if (from.kind == ResumeFrom::Kind::kAuto &&
      (absl::IsInvalidArgument(loaded.status()) || absl::IsDataLoss(loaded.status()))) {
    return WithWayOut(loaded.status(), "--resume=none starts over");
  }
  ABSL_RETURN_IF_ERROR(loaded.status());
  if (training_.epochs_done() < options_.epochs) ReportBegin(loaded->value_or(""));
  return absl::OkStatus();
}

absl::Status Run::OpenDirectory() {
  CheckpointingOptions options{.manager = {.directory = options_.checkpoint_dir,
                                           .run_id = options_.run_id,
                                           .model = ModelSignature(training_.module()),
                                           .retention = RetentionOf(options_, task_.metrics()),
                                           .report_path = options_.save_report,
                                           .on_warning = observer_.on_warning},
                               .trigger = {.every_steps = options_.save_every_steps,
                                           .every = options_.save_every_time,
                                           .signals = options_.save_signals,
                                           .stop_signals = options_.stop_signals,
                                           .check_every = options_.stop_check_every},
                               .stop_if_save_fails = options_.stop_if_save_fails};
  absl::StatusOr<std::unique_ptr<Checkpointing>> opened = Checkpointing::Open(&group_, std::move(options));
  if (absl::IsFailedPrecondition(opened.status())) {
    return WithWayOut(opened.status(), "--checkpoint_dir=DIR names another directory");
  }
  ABSL_ASSIGN_OR_RETURN(checkpointing_, std::move(opened));
  return absl::OkStatus();
}

void Run::ReportBegin(std::string from) {
  if (!observer_.on_begin) return;
  observer_.on_begin({.resumed_from = std::move(from),
                      .epochs = training_.epochs_done(),
                      .rows_done = training_.rows_done(),
                      .step = training_.steps_done(),
                      .rows_in_epoch = training_.rows_in_epoch(),
                      .rows_held_out = training_.rows_held_out(),
                      .learning_rate = training_.learning_rate(),
                      .changes = changes_});
}

void Run::ReportStep() {
  if (!observer_.on_step) return;
  observer_.on_step({.step = training_.steps_done(),
                     .epoch = training_.epochs_done(),
                     .rows_done = training_.rows_done(),
                     .rows_in_epoch = training_.rows_in_epoch(),
                     .rows = training_.last_rows()});
}

absl::StatusOr<TrainerOutcome> Run::Train() {
  TrainerOutcome outcome{.was_complete = training_.epochs_done() >= options_.epochs,
                         .directory = checkpointing_->directory()};
  bool stops = false;
  while (training_.epochs_done() < options_.epochs && !stops) {
    ABSL_ASSIGN_OR_RETURN(const SaveDecision due, TrainEpoch());
    stops = due == SaveDecision::kSaveAndStop;
    if (training_.is_at_end_of_epoch()) {
      ABSL_RETURN_IF_ERROR(EndEpoch(outcome.last, due));
    }
  }
  outcome.was_stopped = training_.epochs_done() < options_.epochs;
  outcome.epochs_done = training_.epochs_done();
  outcome.steps_done = training_.steps_done();
  outcome.rows_done = training_.rows_done();
  outcome.rows_held_out = training_.rows_held_out();
  outcome.failed_saves = checkpointing_->num_failures();
  return Ended(std::move(outcome));
}

absl::StatusOr<TrainerOutcome> Run::Ended(TrainerOutcome outcome) const {
  if (observer_.on_end) observer_.on_end();
  const absl::Status& last = checkpointing_->last_outcome();
  if (last.ok()) return outcome;
  const std::string what = outcome.was_stopped ? absl::StrCat("told to stop after step ", outcome.steps_done)
                                               : absl::StrCat("all ", outcome.epochs_done, " epochs are trained");
  return absl::DataLossError(absl::StrCat(what, ", but the last save failed: ", last.message()));
}

absl::StatusOr<SaveDecision> Run::TrainEpoch() {
  while (true) {
    ABSL_RETURN_IF_ERROR(training_.Step());
    ReportStep();
    ABSL_ASSIGN_OR_RETURN(const SaveDecision due, checkpointing_->Decide(training_.steps_done()));
    if (training_.is_at_end_of_epoch()) return due;
    if (due == SaveDecision::kGoOn) continue;
    ABSL_RETURN_IF_ERROR(SaveCheckpoint(kUnknown, unknown_));
    if (due == SaveDecision::kSaveAndStop) return due;
  }
}

// The model goes first: a run that is resumed from the checkpoint does not come to this epoch again.
absl::Status Run::EndEpoch(EpochReport& epoch, SaveDecision due) {
  epoch.epoch = training_.epochs_done();
  ABSL_ASSIGN_OR_RETURN(const Training::EpochResult result, training_.EndEpoch());
  epoch.step = training_.steps_done();
  epoch.loss = result.loss;
  epoch.metrics = result.metrics;
  epoch.learning_rate = training_.learning_rate();
  if (observer_.on_epoch) observer_.on_epoch(epoch);
  const bool is_planned = epoch.epoch % options_.save_every == 0 || epoch.epoch == options_.epochs - 1;
  if (is_planned) {
    ABSL_ASSIGN_OR_RETURN(const std::optional<SaveReport> model,
                          checkpointing_->Export(absl::StrCat("model_epoch_", epoch.epoch, Suffix(".pth")),
                                                 [&](WritableFile& file) { return training_.WriteModel(file); }));
    if (model.has_value() && observer_.on_export) observer_.on_export(*model);
  }
  if (!is_planned && due == SaveDecision::kGoOn) return absl::OkStatus();
  return SaveCheckpoint(epoch.loss, epoch.metrics);
}

absl::Status Run::SaveCheckpoint(double loss, const std::vector<double>& metrics) {
  CheckpointRequest request{.step = training_.steps_done(), .metrics = {{"loss", loss}}};
  for (size_t i = 0; i < metrics.size(); ++i) {
    request.metrics.insert({std::string(task_.metrics()[i].name), metrics[i]});
  }
  const absl::StatusOr<Checkpointing::Payload> state = training_.GatherState("state");
  ABSL_ASSIGN_OR_RETURN(const std::optional<CheckpointReport> saved,
                        checkpointing_->Save(request, absl::StrCat("state", Suffix(".pt")), state));
  if (saved.has_value() && observer_.on_checkpoint) observer_.on_checkpoint(*saved);
  return absl::OkStatus();
}

}  // namespace

absl::Status AgreeOnRows(ProcessGroup& group, const absl::StatusOr<const RowSource*>& mine) {
  return AgreeOnSame(group, "data", Describe(mine, group.world_size()));
}

absl::StatusOr<TrainerOutcome> Train(ProcessGroup& group, const RowSource& rows, Task& task,
                                     const TrainerOptions& options, const TrainerObserver& observer) {
  const absl::Status valid = CheckTrainerOptions(options, NamesOf(task.metrics()));
  ABSL_RETURN_IF_ERROR(
      AgreeOnSame(group, "training",
                  valid.ok() ? absl::StatusOr<std::string>(absl::StrCat(
                                   ShowTrainerOptions(options), " task=", task.model_name(), " ", task.settings()))
                             : valid));
  Run run(group, rows, task, options, observer);
  ABSL_RETURN_IF_ERROR(run.Begin());
  return run.Train();
}

}  // namespace cohort
