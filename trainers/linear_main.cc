// The program that trains a linear model: `//trainers:linear`. See its --help.

#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/generated_dataset.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/least_squares.h"
#include "cohort/trainers/linear_task.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer.h"
#include "cohort/trainers/trainer_flags.h"
#include "cohort/trainers/trainer_options.h"
#include "cohort/trainers/trainer_program.h"

ABSL_FLAG(std::optional<int64_t>, features, std::nullopt, "Number of features of --data=generated; default 10");
ABSL_FLAG(std::optional<int64_t>, outputs, std::nullopt, "Number of targets of --data=generated; default 2");

namespace cohort {
namespace {

constexpr std::string_view kUsage = R"(fits a linear model, on one rank or on many.

  ./bazelw run --config=launch //trainers:linear             two ranks, the diabetes data
  ./bazelw run --config=launch //trainers:linear             again: already complete
  ./bazelw run --config=launch //trainers:linear -- --epochs=20     goes on to epoch 20
  ./bazelw run //trainers:linear -- --data=my.csv --target=price --checkpoint_dir=price --keep=3

--data=diabetes, the default: 442 patients, 10 measurements, one target; comes with the program. --data=generated: 1000
rows that a linear model fits well. By default 10 epochs, 32 rows a step, sgd, and nothing is held out. The learning rate
is for sgd 0.5 x (1 - momentum) / (features + 1); for the others the targets' root mean square x 0.02 (adam, adamw),
0.02 x (1 - momentum) (rmsprop) or 0.5 (adagrad). The metric is "r2".

Features of a table are standardized: (x - mean) / deviation over all rows; targets are not. model_epoch_E.pth is the state
dict of Python's torch.nn.Linear, and step_N/state.pt a dict of the whole run after N steps: torch.load(path,
weights_only=True). A run that was stopped, or killed, goes on from its newest checkpoint when it is started again, and
makes, bit for bit, what it would have made without the interruption.

Exit codes: 0 trained, or already complete, and the last checkpoint is on disk; 1 it cannot work as started (flags,
environment, data, paths, another run's directory or state); 69 another rank died or did not come; 70 a bug; 74 the disk
is full or failed, the last save failed, a file is damaged, or there is no memory; 75 it was told to stop (SIGTERM,
SIGUSR1) and has saved where it was: the same command goes on.)";

class LinearProgram final : public TrainerProgram {
 public:
  std::string_view usage() const override { return kUsage; }
  absl::Span<const TaskMetric> metrics() const override { return LinearMetrics(); }
  std::string_view builtin_data() const override { return "diabetes"; }
  std::string_view builtin_runfile() const override { return COHORT_DIABETES_CSV; }
  TargetKind target_kind() const override { return TargetKind::kNumbers; }

  absl::Status CheckFlags() const override {
    const std::string data = DataFlag();
    if (data.empty()) return WrongFlag("data", "", "must be diabetes, generated, or the path of a file");
    if (data == "generated" && !TargetFlag().empty()) {
      return WrongFlag("target", absl::StrJoin(TargetFlag(), ","), "is for CSV files, and not for --data=generated");
    }
    for (const auto& [name, value] :
         {std::pair("features", absl::GetFlag(FLAGS_features)), std::pair("outputs", absl::GetFlag(FLAGS_outputs))}) {
      if (!value.has_value()) continue;
      if (data != "generated") return WrongFlag(name, absl::StrCat(*value), "is for --data=generated only");
      if (*value >= 1 && *value <= kMaxGeneratedValues) continue;
      return WrongFlag(name, absl::StrCat(*value), absl::StrCat("must be from 1 to ", kMaxGeneratedValues));
    }
    return absl::OkStatus();
  }

  std::optional<absl::StatusOr<Dataset>> MakeData(std::string_view name) const override {
    if (name != "generated") return std::nullopt;
    GeneratedDatasetOptions options;
    options.num_features = absl::GetFlag(FLAGS_features).value_or(options.num_features);
    options.num_targets = absl::GetFlag(FLAGS_outputs).value_or(options.num_targets);
    options.seed = OptionsFromFlags().seed;
    return GenerateDataset(options);
  }

  absl::StatusOr<std::unique_ptr<Task>> MakeTask(const RowSource& rows) const override { return MakeLinearTask(rows); }

  // The fit beside the best one there is, where that is found in a moment and is one of the same rows.
  void PrintEnd(const TrainingData& data, const TrainerOutcome& outcome) const override {
    const double r2 = outcome.last.metrics[0];
    std::string best;
    if (data.table.has_value() && outcome.rows_held_out == 0 && !std::isnan(r2) && IsSmall(*data.table)) {
      const absl::StatusOr<double> error = LeastSquaresError(*data.table);
      if (error.ok()) {
        best = absl::StrFormat("; least squares, the best there is: %.5f", 1 - *error / TargetVariation(*data.table));
      }
    }
    const std::string shown = std::isnan(r2) ? "undefined (the targets are constant as floats)" : absl::StrFormat("%.5f", r2);
    absl::PrintF("fit      R2 %s%s\n", shown, best);
  }

 private:
  static bool IsSmall(const Dataset& table) {
    return static_cast<double>(table.num_rows) * std::pow(static_cast<double>(table.num_features()), 2) < 1e9;
  }
};

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return cohort::RunTrainer(argc, argv, cohort::LinearProgram()); }
