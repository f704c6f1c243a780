// File: steady_time.h
//
// Deadlines on a clock that nobody sets: a step of the wall clock must not look like a rank that never came.

#ifndef COHORT_RUNTIME_INTERNAL_STEADY_TIME_H_
#define COHORT_RUNTIME_INTERNAL_STEADY_TIME_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace cohort::internal {

using SteadyTime = std::chrono::steady_clock::time_point;

inline SteadyTime SteadyNow() { return std::chrono::steady_clock::now(); }

// `start` + `timeout`. A negative timeout counts as none, an infinite one as ten years: the sum must not overflow.
inline SteadyTime After(SteadyTime start, absl::Duration timeout) {
  constexpr absl::Duration kLongest = absl::Hours(24 * 365 * 10);
  return start + absl::ToChronoNanoseconds(std::clamp(timeout, absl::ZeroDuration(), kLongest));
}

inline absl::Duration Between(SteadyTime start, SteadyTime end) { return absl::FromChrono(end - start); }

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_STEADY_TIME_H_
