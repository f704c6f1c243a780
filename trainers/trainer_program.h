// File: trainer_program.h
//
// RunTrainer: the program around Train: flags, data, what is printed, signals, exit codes. A trainer's _main.cc is a
// TrainerProgram and a call of this.

#ifndef COHORT_TRAINERS_TRAINER_PROGRAM_H_
#define COHORT_TRAINERS_TRAINER_PROGRAM_H_

#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/data/dataset.h"
#include "cohort/trainers/data/dataset_rows.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"
#include "cohort/trainers/trainer.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {

// What is learned from. The features of a table are standardized over all rows; a mapped file is used as it is.
struct TrainingData {
  std::optional<Dataset> table;  // if it is one
  std::unique_ptr<RowSource> rows;
};

// What a program has of its own. Everything is local, and called when Abseil has parsed the flags.
class TrainerProgram {
 public:
  virtual ~TrainerProgram() = default;

  // What --help says before the flags: what the program trains, what it does by default, an example, its exit codes.
  virtual std::string_view usage() const = 0;

  virtual TrainerOptions defaults() const { return {}; }
  virtual absl::Span<const TaskMetric> metrics() const = 0;

  // The data that come with the program: the name of --data, and of the runfile with them, a CSV file.
  virtual std::string_view builtin_data() const = 0;
  virtual std::string_view builtin_runfile() const = 0;
  virtual TargetKind target_kind() const = 0;

  // InvalidArgument if a flag of its own is wrong.
  virtual absl::Status CheckFlags() const = 0;

  // Data of its own that --data=NAME stands for; nullopt if there is no such name.
  virtual std::optional<absl::StatusOr<Dataset>> MakeData(std::string_view /*name*/) const { return std::nullopt; }

  virtual absl::StatusOr<std::unique_ptr<Task>> MakeTask(const RowSource& rows) const = 0;

  // On the main rank, when all is trained: what else there is to say, in whole lines to stdout.
  virtual void PrintEnd(const TrainingData& /*data*/, const TrainerOutcome& /*outcome*/) const {}
};

// Returns the exit code of the program (outcome.h). Never returns for --help.
int RunTrainer(int argc, char** argv, const TrainerProgram& program);

}  // namespace cohort

#endif  // COHORT_TRAINERS_TRAINER_PROGRAM_H_
