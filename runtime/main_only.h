// File: main_only.h
//
// RunOnMain: something that one rank does and every rank must know the outcome of. And logging that only the main rank
// emits.

#ifndef COHORT_RUNTIME_MAIN_ONLY_H_
#define COHORT_RUNTIME_MAIN_ONLY_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/log/absl_log.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

// Collective. Calls `function` on the main rank only and returns its outcome on every rank; an exception that it throws
// becomes a Status (see InvokeUser) and reaches every rank as well.
// The other ranks wait at most `timeout`: choose it by how long the work may take, not by the network.
//
// Errors: what `function` returned, as "rank 0: TEXT"; and those of ProcessGroup::Agree.
absl::Status RunOnMain(ProcessGroup& group, std::string_view name, absl::Duration timeout,
                       absl::FunctionRef<absl::Status()> function);

// Collective. The same with local rank 0 of each node, for per-node work such as unpacking data to a local disk. Every
// rank of the job waits for all nodes; the error is that of the lowest rank that failed.
absl::Status RunOnLocalMain(ProcessGroup& group, std::string_view name, absl::Duration timeout,
                            absl::FunctionRef<absl::Status()> function);

// Local. Runs `function` and turns what it throws into a Status. RunOnMain and MainOnlySaver call users' code through
// it: an exception that left it would be a hang of the other ranks.
//
//   std::bad_alloc          ResourceExhausted
//   std::system_error       by errno
//   std::invalid_argument   InvalidArgument
//   std::out_of_range       OutOfRange
//   other std::exception    Internal
//   anything else           Unknown
absl::Status InvokeUser(absl::FunctionRef<absl::Status()> function);

}  // namespace cohort

// ABSL_LOG(severity) on the main rank; nothing, not even the evaluation of what is streamed, on the others:
//
//   COHORT_LOG_MAIN(*group, INFO) << "epoch " << epoch << ": loss " << loss;
#define COHORT_LOG_MAIN(group, severity) ABSL_LOG_IF(severity, (group).is_main())

// ABSL_LOG(severity) on every rank that comes here, in lines that say which rank it was: "[rank 3] ...".
#define COHORT_LOG_RANK(group, severity) ABSL_LOG(severity) << "[rank " << (group).rank() << "] "

#endif  // COHORT_RUNTIME_MAIN_ONLY_H_
