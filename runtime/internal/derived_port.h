// File: derived_port.h
//
// A port that all ranks of a job find without talking to each other, from something that other jobs have otherwise.

#ifndef COHORT_RUNTIME_INTERNAL_DERIVED_PORT_H_
#define COHORT_RUNTIME_INTERNAL_DERIVED_PORT_H_

#include <cstdint>

namespace cohort::internal {

// 20000 to 29999: above the ports of services, below those that kernels give to connections (from 32768 on Linux).
inline constexpr int kFirstDerivedPort = 20000;
inline constexpr int kNumDerivedPorts = 10000;

constexpr int DerivedPort(uint64_t number) { return kFirstDerivedPort + static_cast<int>(number % kNumDerivedPorts); }

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_DERIVED_PORT_H_
