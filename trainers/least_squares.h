// File: least_squares.h
//
// LeastSquaresError: the best that any linear model can do.

#ifndef COHORT_TRAINERS_LEAST_SQUARES_H_
#define COHORT_TRAINERS_LEAST_SQUARES_H_

#include "absl/status/statusor.h"
#include "cohort/trainers/data/dataset.h"

namespace cohort {

// Local. Returns the sum of squared errors of the closed-form least-squares fit (weights and bias) of all targets to
// all features. In double, and also right where features depend on each other. Takes time proportional to rows x
// features^2.
//
// Errors: what LibTorch threw (an own build of it may lack LAPACK).
absl::StatusOr<double> LeastSquaresError(const Dataset& data);

}  // namespace cohort

#endif  // COHORT_TRAINERS_LEAST_SQUARES_H_
