// File: linear_task.h
//
// MakeLinearTask: fits a linear model to numbers: mean squared error, and R2.

#ifndef COHORT_TRAINERS_LINEAR_TASK_H_
#define COHORT_TRAINERS_LINEAR_TASK_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/trainers/data/row_source.h"
#include "cohort/trainers/task.h"

namespace cohort {

// "r2": the share of the targets' variation that the model explains, of the rows that are looked at; at most 1; NaN if
// the targets do not vary.
absl::Span<const TaskMetric> LinearMetrics();

// Local. A Linear(features, targets) on `rows`, which may go when this returns. Its loss is the squared error. Unless
// the options say otherwise its learning rate is
//   sgd      0.5 (1 - momentum) / (features + 1): an input's squared length is features + 1 in the mean, as features
//            have deviation 1 and the bias is one more; that length is what bounds the steps that do not overshoot.
//            With momentum every gradient is used 1 / (1 - momentum) times.
//   adam     0.02 x the targets' root mean square: Adam steps by so much whatever the gradient, and the parameters are
//            of the targets' size.
//   adamw    as adam. Its weight decay is 0.01 / the targets' root mean square, so that the unit of the targets does
//            not matter: with 0.01 itself AdamW holds every parameter below 100.
//   rmsprop  0.02 (1 - momentum) x the targets' root mean square: its steps are as long as Adam's.
//   adagrad  0.5 x the targets' root mean square: step n is shorter by the root of n, and the steps of the default run
//            are so as long as Adam's together.
// where the root mean square is that of the first 65536 rows.
//
// Errors: InvalidArgument if a row's features or targets are not a list of floats; those of RowSource::Read.
absl::StatusOr<std::unique_ptr<Task>> MakeLinearTask(const RowSource& rows);

}  // namespace cohort

#endif  // COHORT_TRAINERS_LINEAR_TASK_H_
