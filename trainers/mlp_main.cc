// The program that trains a classifier: `//trainers:mlp`. See its --help.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/mlp_task.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer_flags.h"
#include "cohort/trainers/trainer_options.h"
#include "cohort/trainers/trainer_program.h"

ABSL_FLAG(std::vector<std::string>, hidden, std::vector<std::string>({"128"}),
          "Sizes of the hidden layers, separated by commas; empty: none");
ABSL_FLAG(double, dropout, cohort::MlpTaskOptions().dropout,
          "The share of a hidden layer's numbers that are left out at random in training; at least 0 and below 1");
ABSL_FLAG(std::optional<int64_t>, classes, std::nullopt,
          "How many classes there are; default: as many as the data have, for which every rank reads all of them once");

namespace cohort {
namespace {

constexpr std::string_view kUsage = R"(trains a multilayer perceptron as a classifier, on one rank or on many.

  ./bazelw run --config=launch //trainers:mlp                two ranks, the digits
  ./bazelw run //trainers:mlp -- --data=my.csv --target=kind --checkpoint_dir=kinds --hidden=64,64

--data=digits, the default: 1797 images of 8x8, 10 classes; comes with the program. A target is a class, a whole number
from 0 on. By default 20 epochs, 32 rows a step, adam, and a fifth of the rows is held out. The learning rate is 0.001 for
adam and adamw, 0.1 x (1 - momentum) for sgd, 0.001 x (1 - momentum) for rmsprop and 0.01 for adagrad. The loss is the
cross entropy, the metric "accuracy".

Features of a table are standardized: (x - mean) / deviation over all rows. model_epoch_E.pth is the state dict of Python's
torch.nn.Sequential(Linear, ReLU, Dropout, ..., Linear), and step_N/state.pt a dict of the whole run after N steps:
torch.load(path, weights_only=True). A run that was stopped, or killed, goes on from its newest checkpoint when it is
started again, and makes, bit for bit, what it would have made without the interruption.

Exit codes: 0 trained, or already complete, and the last checkpoint is on disk; 1 it cannot work as started (flags,
environment, data, paths, another run's directory or state); 69 another rank died or did not come; 70 a bug; 74 the disk
is full or failed, the last save failed, a file is damaged, or there is no memory; 75 it was told to stop (SIGTERM,
SIGUSR1) and has saved where it was: the same command goes on.)";

class MlpProgram final : public TrainerProgram {
 public:
  std::string_view usage() const override { return kUsage; }
  absl::Span<const TaskMetric> metrics() const override { return MlpMetrics(); }
  std::string_view builtin_data() const override { return "digits"; }
  std::string_view builtin_runfile() const override { return COHORT_DIGITS_CSV; }
  TargetKind target_kind() const override { return TargetKind::kClass; }

  TrainerOptions defaults() const override { return {.epochs = 20, .optimizer = "adam", .validation = 0.2}; }

  absl::Status CheckFlags() const override {
    if (DataFlag().empty()) return WrongFlag("data", "", "must be digits, or the path of a file");
    const absl::StatusOr<MlpTaskOptions> options = TaskOptions();
    if (!options.ok()) return options.status();
    // The options are named as the flags are.
    const absl::Status valid = CheckMlpTaskOptions(*options);
    return valid.ok() ? valid : absl::InvalidArgumentError(absl::StrCat("--", valid.message()));
  }

  absl::StatusOr<std::unique_ptr<Task>> MakeTask(const RowSource& rows) const override {
    const absl::StatusOr<MlpTaskOptions> options = TaskOptions();
    if (!options.ok()) return options.status();
    return MakeMlpTask(rows, *options);
  }

 private:
  static absl::StatusOr<MlpTaskOptions> TaskOptions() {
    MlpTaskOptions options{.hidden = {}, .dropout = absl::GetFlag(FLAGS_dropout)};
    options.classes = absl::GetFlag(FLAGS_classes);
    const std::vector<std::string> hidden = absl::GetFlag(FLAGS_hidden);
    for (const std::string& text : hidden) {
      int64_t size;
      if (!absl::SimpleAtoi(text, &size)) {
        return WrongFlag("hidden", absl::StrJoin(hidden, ","), "must be whole numbers, separated by commas");
      }
      options.hidden.push_back(size);
    }
    return options;
  }
};

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return cohort::RunTrainer(argc, argv, cohort::MlpProgram()); }
