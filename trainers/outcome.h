// File: outcome.h
//
// How a program of ours ends: which exit code, and which rank says why.

#ifndef COHORT_TRAINERS_OUTCOME_H_
#define COHORT_TRAINERS_OUTCOME_H_

#include "absl/status/status.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

// The numbers are those of sysexits.h where it has one; see docs/launching.md.
enum ExitCode : int {
  kExitOk = 0,
  // It cannot work as it was started: flags, environment, data, paths, backend. Abseil's flags end a program with 1 as
  // well.
  kExitUsage = 1,
  // Another rank died, left, or did not come in time: starting again may help.
  kExitUnavailable = 69,
  // A bug, ours or LibTorch's.
  kExitInternal = 70,
  // The disk is full or failed, or there is no memory.
  kExitIo = 74,
  // It was told to stop, and has saved where it was: the same command goes on. No error, and of no status.
  kExitPreempted = 75,
};

ExitCode ExitCodeOf(const absl::Status& status);

// What the functions below write, they leave in the rank's error file as well (cohort/runtime/error_file.h).

// Collective, unless the group is poisoned. Writes `status`, an error that this rank's last collective returned, to
// stderr. An error that all ranks share is written by the main rank alone, and no rank returns before that: a launcher
// stops all ranks when the first exits. If the ranks can no longer agree, each that is left writes its own.
void ReportError(ProcessGroup& group, const absl::Status& status);

// Local. Writes an error that came before there was a group, when no rank knows what the others do.
void ReportError(const absl::Status& status);

}  // namespace cohort

#endif  // COHORT_TRAINERS_OUTCOME_H_
