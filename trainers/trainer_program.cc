#include "cohort/trainers/trainer_program.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_manager.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/main_only_saver.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/internal/standard_streams.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/console.h"
#include "cohort/trainers/data/csv_dataset.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_file.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/flags_help.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/data/runfile.h"
#include "cohort/trainers/metrics_report.h"
#include "cohort/trainers/outcome.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer.h"
#include "cohort/trainers/trainer_flags.h"
#include "cohort/trainers/trainer_options.h"
#include "cohort/trainers/typed_path.h"

namespace cohort {
namespace {

constexpr std::string_view kMappedSuffix = ".safetensors";
constexpr size_t kMostNames = 20;  // of columns that are printed

// ---- Data ----

absl::StatusOr<Dataset> ReadTable(const TrainerProgram& program, std::string_view name, std::string_view argv0) {
  if (std::optional<absl::StatusOr<Dataset>> made = program.MakeData(name); made.has_value()) return *std::move(made);
  std::string path = TypedPath(name);
  if (name == program.builtin_data()) {
    ABSL_ASSIGN_OR_RETURN(path, LocateRunfile(argv0, program.builtin_runfile()));
  }
  absl::StatusOr<Dataset> read = ReadCsvDataset(path, TargetFlag());
  if (!absl::IsNotFound(read.status())) return read;
  return absl::NotFoundError(absl::StrCat(
      read.status().message(), "; --data names a CSV file, a .safetensors file, or \"", program.builtin_data(), "\""));
}

absl::StatusOr<TrainingData> ReadData(const TrainerProgram& program, std::string_view argv0) {
  const std::string name = DataFlag();
  TrainingData data;
  if (absl::EndsWith(name, kMappedSuffix)) {
    if (const std::vector<std::string> targets = TargetFlag(); !targets.empty()) {
      return WrongFlag("target", absl::StrJoin(targets, ","), "is for CSV files, and not for a .safetensors file");
    }
    ABSL_ASSIGN_OR_RETURN(data.rows, OpenDatasetFile(TypedPath(name)));
    return data;
  }
  ABSL_ASSIGN_OR_RETURN(data.table, ReadTable(program, name, argv0));
  data.table->checksum = Checksum(*data.table);
  StandardizeFeatures(*data.table);
  ABSL_ASSIGN_OR_RETURN(data.rows, MakeDatasetRows(*data.table, program.target_kind()));
  return data;
}

// Every rank's data, if all have the same.
absl::StatusOr<TrainingData> AgreeOnData(ProcessGroup& group, absl::StatusOr<TrainingData> mine) {
  ABSL_RETURN_IF_ERROR(AgreeOnRows(group, mine.ok() ? absl::StatusOr<const RowSource*>(mine->rows.get())
                                                    : absl::StatusOr<const RowSource*>(mine.status())));
  return mine;
}

// ---- Output ----

std::string ShownNames(const std::vector<std::string>& names, std::string_view what) {
  if (names.size() > kMostNames) return absl::StrCat(names.size(), " ", what);
  return internal::Printable(absl::StrJoin(names, " "));
}

void PrintStart(Console& console, const ProcessGroup& group, const TrainingData& data, const Task& task,
                const TrainerOptions& options) {
  const RowSourceInfo& rows = data.rows->info();
  console.Print("data     %d rows from %s\n", rows.num_rows, internal::Printable(rows.name));
  const std::string columns = data.table.has_value()
                                  ? absl::StrCat(": ", ShownNames(data.table->feature_names, "features"), " -> ",
                                                 ShownNames(data.table->target_names, "targets"))
                                  : "";
  console.Print("model    %s%s\n", task.model_name(), columns);
  console.Print("job      %d %s, backend %s; %d rows a step in all; %s\n", group.world_size(),
                group.world_size() == 1 ? "rank" : "ranks", group.backend_name(),
                std::min(options.batch_size, rows.num_rows), options.optimizer);
}

// A report that cannot be written is a warning, once: it is not what the run is for.
class EpochLines {
 public:
  EpochLines(Console& console, absl::Span<const TaskMetric> metrics, std::unique_ptr<MetricsReport> report)
      : console_(console), metrics_(metrics), report_(std::move(report)) {}

  void Add(const EpochReport& epoch) {
    console_.PrintEpoch(epoch, metrics_);
    if (report_ == nullptr) return;
    std::vector<std::pair<std::string, double>> values = {
        {"epoch", static_cast<double>(epoch.epoch)}, {"step", static_cast<double>(epoch.step)}, {"loss", epoch.loss}};
    for (size_t i = 0; i < metrics_.size(); ++i) values.emplace_back(metrics_[i].name, epoch.metrics[i]);
    values.emplace_back("next_learning_rate", epoch.learning_rate);
    const absl::Status added = report_->Append(values);
    if (added.ok()) return;
    console_.Warn(absl::StrCat(added.message(), "; nothing more is reported there"));
    report_ = nullptr;
  }

 private:
  Console& console_;
  const absl::Span<const TaskMetric> metrics_;
  std::unique_ptr<MetricsReport> report_;  // null on all ranks but the main one, and if none is wanted
};

// Collective. The report that is asked for, if it is and this is the main rank.
absl::StatusOr<std::unique_ptr<MetricsReport>> OpenReport(ProcessGroup& group, const TrainerOptions& options) {
  std::unique_ptr<MetricsReport> report;
  absl::Status opened;
  const std::string path = MetricsReportFlag();
  if (group.is_main() && !path.empty()) {
    absl::StatusOr<std::unique_ptr<MetricsReport>> mine = MetricsReport::Open(path, options.checkpoint_dir);
    opened = mine.status();
    if (mine.ok()) report = *std::move(mine);
  }
  ABSL_RETURN_IF_ERROR(group.Agree("the metrics report can be written", opened));
  return report;
}

// ---- The program ----

// A signal that comes when all is saved, or that was already heard, must not end the process in its last moments.
void IgnoreStopSignals() {
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) std::signal(signal, SIG_IGN);
}

absl::StatusOr<TrainerOutcome> TrainWithOutput(ProcessGroup& group, Console& console, EpochLines& lines,
                                               const TrainingData& data, Task& task, const TrainerOptions& options) {
  TrainerObserver observer;
  observer.on_begin = [&](const BeginReport& begun) { console.PrintBegin(begun); };
  observer.on_step = [&](const StepReport& step) { console.ShowStep(step); };
  observer.on_epoch = [&](const EpochReport& epoch) { lines.Add(epoch); };
  observer.on_export = [&](const SaveReport& saved) { console.PrintSave(saved.path, saved.num_bytes, saved.blocked); };
  observer.on_checkpoint = [&](const CheckpointReport& saved) {
    console.PrintSave(saved.checkpoint.path, saved.num_bytes, saved.blocked, saved.retired);
  };
  observer.on_end = IgnoreStopSignals;
  observer.on_warning = [&](std::string_view warning) { console.Warn(warning); };
  return Train(group, *data.rows, task, options, observer);
}

// Returns whether the run was stopped before its end.
absl::StatusOr<bool> TrainAndPrint(ProcessGroup& group, const TrainerProgram& program, std::string_view argv0) {
  const TrainerOptions options = OptionsFromFlags();
  Console console(group);
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<MetricsReport> report, OpenReport(group, options));
  EpochLines lines(console, program.metrics(), std::move(report));
  ABSL_ASSIGN_OR_RETURN(const TrainingData data, AgreeOnData(group, ReadData(program, argv0)));
  absl::StatusOr<std::unique_ptr<Task>> task = program.MakeTask(*data.rows);
  ABSL_RETURN_IF_ERROR(group.Agree("the task is made", task.status()));
  PrintStart(console, group, data, **task, options);
  ABSL_ASSIGN_OR_RETURN(const TrainerOutcome outcome, TrainWithOutput(group, console, lines, data, **task, options));
  if (outcome.was_complete) {
    const std::string asked =
        outcome.epochs_done > options.epochs ? absl::StrFormat(" (%d were asked for)", options.epochs) : "";
    console.Print("already complete: epoch %d of %d in %s%s; --resume=none starts over\n", outcome.epochs_done,
                  outcome.epochs_done, internal::Printable(outcome.directory), asked);
  } else if (outcome.was_stopped) {
    console.PrintStop(outcome);
  } else if (group.is_main()) {
    program.PrintEnd(data, outcome);
  }
  return outcome.was_stopped;
}

ExitCode Run(const TrainerProgram& program, const std::vector<char*>& arguments) {
  std::vector<std::string_view> metrics;
  for (const TaskMetric& metric : program.metrics()) metrics.push_back(metric.name);
  absl::Status status = CheckFlags(arguments, metrics);
  if (status.ok()) status = program.CheckFlags();
  std::unique_ptr<ProcessGroup> group;
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<ProcessGroup>> connected = InitProcessGroup(GroupOptionsFromFlags());
    status = connected.status();
    if (connected.ok()) group = *std::move(connected);
  }
  if (group == nullptr) {
    ReportError(status);
    return ExitCodeOf(status);
  }
  const absl::StatusOr<bool> was_stopped = TrainAndPrint(*group, program, arguments[0]);
  if (!was_stopped.ok()) ReportError(*group, was_stopped.status());
  const absl::Status left = group->Shutdown();
  if (!was_stopped.ok()) return ExitCodeOf(was_stopped.status());
  if (!left.ok()) ReportError(left);
  return left.ok() && *was_stopped ? kExitPreempted : ExitCodeOf(left);
}

}  // namespace

int RunTrainer(int argc, char** argv, const TrainerProgram& program) {
  internal::OccupyStandardStreams();
  // A limit on the size of files is then an error of the save, which names the file, and not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // Before there is something to save, the wish for a save must not end the process either.
  std::signal(SIGUSR1, SIG_IGN);
  std::signal(SIGUSR2, SIG_IGN);
  SetFlagDefaults(program.defaults(), program.builtin_data());
  PrintHelpIfAsked(argc, argv, program.usage());
  const std::vector<char*> arguments = absl::ParseCommandLine(argc, argv);
  return Run(program, arguments);
}

}  // namespace cohort
