// File: main_only.h
//
// RunOnMain: something that one rank does and every rank must know the outcome of. And logging that only the main rank emits.

#ifndef COHORT_RUNTIME_MAIN_ONLY_H_
#define COHORT_RUNTIME_MAIN_ONLY_H_

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

// Collective. Calls `function` on the main rank only and returns its outcome on every rank; an exception that it throws
// becomes a Status (absl::StatusCode by the table in docs/architecture.md) and reaches every rank as well.
// The other ranks wait at most `timeout`: choose it by how long the work may take, not by the network.
//
// Errors: what `function` returned, as "rank 0: TEXT"; and those of ProcessGroup::Agree.
absl::Status RunOnMain(ProcessGroup& group, std::string_view name, absl::Duration timeout,
                       absl::FunctionRef<absl::Status()> function);

// Collective. The same with local rank 0 of each node, for per-node work such as unpacking data to a local disk. Every rank of the
// job waits for all nodes; the error is that of the lowest rank that failed.
absl::Status RunOnLocalMain(ProcessGroup& group, std::string_view name, absl::Duration timeout,
                            absl::FunctionRef<absl::Status()> function);

// Local. Runs `function` and turns what it throws into a Status. RunOnMain and MainOnlySaver call users' code through it:
// an exception that left it would be a hang of the other ranks.
absl::Status InvokeUser(absl::FunctionRef<absl::Status()> function);

}  // namespace cohort

#endif  // COHORT_RUNTIME_MAIN_ONLY_H_
