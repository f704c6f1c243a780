// File: plain_gloo.h
//
// A group as a program makes it that has LibTorch alone, to be measured beside ours. Not for programs.

#ifndef COHORT_RUNTIME_INTERNAL_PLAIN_GLOO_H_
#define COHORT_RUNTIME_INTERNAL_PLAIN_GLOO_H_

#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/rank_info.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace cohort::internal {

// Collective. Rank 0 serves a c10d::TCPStore at the meeting point, through which ProcessGroupGloo connects all ranks, which
// must be on this machine. Throws as LibTorch does.
c10::intrusive_ptr<c10d::Backend> ConnectPlainGloo(const RankInfo& info, absl::Duration timeout);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_PLAIN_GLOO_H_
