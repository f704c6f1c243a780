// File: task.h
//
// Task: what a trainer has of its own: a model, a loss, and what says how good the model is.

#ifndef COHORT_TRAINERS_TASK_H_
#define COHORT_TRAINERS_TASK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "c10/core/Device.h"
#include "cohort/runtime/process_group.h"
#include "cohort/trainers/trained_model.h"
#include "cohort/trainers/trainer_options.h"

namespace cohort {

struct TaskMetric {
  std::string_view name;       // in options and files: "accuracy"
  std::string_view label;      // as it is printed
  bool is_best_when_greatest;  // or when least
};

// Everything is equal on all ranks but for what Loss and Sums are given. What is local may throw what LibTorch throws.
// It need not know ranks, accumulation, files or signals.
class Task {
 public:
  virtual ~Task() = default;

  // As it is printed: "Linear(10, 1)".
  virtual std::string model_name() const = 0;

  // What else must be the same for a resumed run to make what it would have made: "dropout=0.1". Perhaps empty.
  virtual std::string settings() const = 0;

  // What Metrics returns, in this order; at least one.
  virtual absl::Span<const TaskMetric> metrics() const = 0;

  // The learning rate that a run begins with, unless the options have one; and AdamW's weight decay.
  virtual double LearningRate(const TrainerOptions& options) const = 0;
  virtual double weight_decay() const = 0;

  // Collective; called once. The model with its first parameters, from the global random generator, which the ranks
  // have seeded alike. Errors: those of TrainOnAllRanks.
  virtual absl::StatusOr<std::unique_ptr<TrainedModel>> MakeModel(ProcessGroup* group, at::Device device) = 0;

  // Local. The sum of the rows' losses, a scalar, 0 of no rows; differentiable. What is reported and learned from is
  // divided by the number of rows and by loss_values_per_row.
  virtual at::Tensor Loss(const at::Tensor& output, const at::Tensor& targets) const = 0;
  virtual int64_t loss_values_per_row() const = 0;

  // Local. What Metrics is made of, summed over the rows: doubles, [num_sums].
  virtual at::Tensor Sums(const at::Tensor& output, const at::Tensor& targets) const = 0;
  virtual int64_t num_sums() const = 0;

  // Local. The metrics of `num_rows` rows, at least 1, from their sums over all ranks; NaN: undefined.
  virtual std::vector<double> Metrics(absl::Span<const double> sums, int64_t num_rows) const = 0;
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_TASK_H_
