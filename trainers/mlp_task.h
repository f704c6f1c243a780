// File: mlp_task.h
//
// MakeMlpTask: a classifier: cross entropy, and accuracy.

#ifndef COHORT_TRAINERS_MLP_TASK_H_
#define COHORT_TRAINERS_MLP_TASK_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"

namespace cohort {

// Must be equal on all ranks.
struct MlpTaskOptions {
  std::vector<int64_t> hidden = {128};  // sizes of the hidden layers, each 1 to kMaxLayer
  double dropout = 0.1;                 // at least 0, below 1
  // How many there are, 2 to kMaxLayer; a row of another class is found when it is used (InvalidArgument). nullopt: as many as
  // the data have, the greatest class and one more, for which all rows are read once.
  std::optional<int64_t> classes;
};

inline constexpr int64_t kMaxLayer = 1'000'000;

// Local. InvalidArgument if an option is out of its range: "OPTION=VALUE: what is allowed".
absl::Status CheckMlpTaskOptions(const MlpTaskOptions& options);

// "accuracy": the share of the rows whose class has the greatest output.
absl::Span<const TaskMetric> MlpMetrics();

// Local. An Mlp on `rows`, which may go when this returns. Its loss is the cross entropy, in nats. Unless the options
// say otherwise its learning rate is 0.1 (1 - momentum) for sgd, 0.01 for adagrad, 0.001 (1 - momentum) for rmsprop,
// and 0.001 for adam and adamw, whose weight decay is 0.01.
//
// Errors: those of CheckMlpTaskOptions; InvalidArgument if the features are complex, a row's target is no class (which row), or the data have
// fewer than 2 classes or more than kMaxLayer; those of RowSource::Read.
absl::StatusOr<std::unique_ptr<Task>> MakeMlpTask(const RowSource& rows, const MlpTaskOptions& options);

}  // namespace cohort

#endif  // COHORT_TRAINERS_MLP_TASK_H_
