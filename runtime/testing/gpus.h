// File: gpus.h
//
// For tests that need GPUs, and that look at which of them a process has touched.

#ifndef COHORT_RUNTIME_TESTING_GPUS_H_
#define COHORT_RUNTIME_TESTING_GPUS_H_

#include <vector>

namespace cohort::testing {

// How many GPUs a test of nccl has: those of this machine, or none in a build without NCCL. Asks neither LibTorch nor the
// driver, so that the caller can still fork processes that do.
int NumGpus();

// The CUDA devices on which this process has a context: memory of theirs that others lack. Makes none itself.
std::vector<int> DevicesWithContext();

// This thread's current CUDA device, as LibTorch sees it. To set it makes a context there. Both need a GPU.
int CurrentDevice();
void SetCurrentDevice(int device);

}  // namespace cohort::testing

#endif  // COHORT_RUNTIME_TESTING_GPUS_H_
