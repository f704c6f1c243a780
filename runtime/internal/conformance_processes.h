// File: conformance_processes.h
//
// RunWithProcesses: a conformance check on ranks that are processes, and can really be killed and stopped.

#ifndef COHORT_RUNTIME_INTERNAL_CONFORMANCE_PROCESSES_H_
#define COHORT_RUNTIME_INTERNAL_CONFORMANCE_PROCESSES_H_

#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend_conformance.h"
#include "cohort/runtime/process_group.h"

namespace cohort::internal {

// Makes the group of `rank`, in its process, with the world size and the timeout of the check. The ranks find each
// other through files in `directory`, which they share and nobody else uses.
using MakeGroup =
    absl::FunctionRef<absl::StatusOr<std::unique_ptr<ProcessGroup>>(int rank, const std::string& directory)>;

// More than any deadline that a check keeps, less than a test may take.
inline constexpr absl::Duration kConformancePatience = absl::Seconds(45);

// Forks a process for each rank, so the caller must not have started threads yet, and waits until all have ended. What
// hangs for longer than `patience` is killed.
//
// Errors: what the ranks found, or how their processes ended, one line for each that did not do what the check wants.
absl::Status RunWithProcesses(const ConformanceCheck& check, MakeGroup make_group,
                              absl::Duration patience = kConformancePatience);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_CONFORMANCE_PROCESSES_H_
