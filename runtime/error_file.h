// File: error_file.h
//
// The error file: where a rank leaves the error it ends with, for the launcher to show. torchrun, which would say
// "error_file: <N/A>", then has the rank's own words for the root cause; cohort's launcher has them in its summary.

#ifndef COHORT_RUNTIME_ERROR_FILE_H_
#define COHORT_RUNTIME_ERROR_FILE_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include "absl/status/status.h"

namespace cohort {

// Local; any thread. Writes `error`, which is not OK, into the file that TORCHELASTIC_ERROR_FILE names, in the form that
// torch.distributed.elastic reads. InitProcessGroup and every ProcessGroup do it with their own errors; call it with
// what else a program ends with, before it does. It is of no account if the process exits with 0.
//
// What ends InitProcessGroup or a group is in the file once a call has returned it: the process may end at once then, by
// _exit or quick_exit as well. Before, as when a rank dies while this one computes, nothing is promised.
//
// The first error of a process counts: once one is written, nothing else is. Nothing is written where there is a file
// already, a link included; what is written is there whole or not at all, with mode 0600. Returns whether it was written
// by this call: if not, there is nothing to do about it, and no reason to fail.
//
// The variable is read by the first call of either function in the process: not safe while another thread changes the
// environment. Does not wait for anybody but another call.
bool WriteErrorFile(const absl::Status& error);

// Local. Reads the variable, so that no later call has to. InitProcessGroup does it.
void LocateErrorFile();

}  // namespace cohort

#endif  // COHORT_RUNTIME_ERROR_FILE_H_
