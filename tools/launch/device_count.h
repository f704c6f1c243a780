// File: device_count.h
//
// How many ranks "gpu", "cpu" and "auto" are.

#ifndef COHORT_TOOLS_LAUNCH_DEVICE_COUNT_H_
#define COHORT_TOOLS_LAUNCH_DEVICE_COUNT_H_

#include "absl/status/statusor.h"

namespace cohort::launch {

// How many GPUs CUDA would show to a rank: the driver is asked (cuInit and cuDeviceGetCount of `driver`), because it
// alone knows what CUDA_VISIBLE_DEVICES, a container and MIG leave of them. 0 if there is no driver or it has no
// device. Blocks for as long as the driver takes to start, which is up to seconds.
//
// The driver runs in a child process: it may start threads, keep files open, or crash. The process must have no other
// thread.
//
// Errors:
//   Unavailable  the driver is there and does not work: what it said, or how the child ended.
//   Internal     the system refuses a process.
absl::StatusOr<int> CountGpus(const char* driver = "libcuda.so.1");

// How many processors this process may run on (its affinity, which taskset, containers' cpusets and Slurm set), as
// torchrun counts them.
int CountCpus();

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_DEVICE_COUNT_H_
