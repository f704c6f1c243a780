// File: runtime.h
//
// All that a program needs to be one rank of a job: InitProcessGroup, ProcessGroup, RunOnMain.

#ifndef COHORT_RUNTIME_RUNTIME_H_
#define COHORT_RUNTIME_RUNTIME_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/main_only.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"

#endif  // COHORT_RUNTIME_RUNTIME_H_
