// File: torch_duration.h

#ifndef COHORT_RUNTIME_INTERNAL_TORCH_DURATION_H_
#define COHORT_RUNTIME_INTERNAL_TORCH_DURATION_H_

#include <algorithm>
#include <chrono>

#include "absl/time/time.h"

namespace cohort::internal {

// A timeout as LibTorch takes it. Zero means "for ever" there, and a large one overflows inside, so it stays between a
// millisecond and ten years.
inline std::chrono::milliseconds ToTorchTimeout(absl::Duration timeout) {
  return absl::ToChronoMilliseconds(
      std::clamp(absl::Ceil(timeout, absl::Milliseconds(1)), absl::Milliseconds(1), absl::Hours(24 * 365 * 10)));
}

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TORCH_DURATION_H_
