// File: small_disk.h

#ifndef COHORT_TESTS_FAULTS_SMALL_DISK_H_
#define COHORT_TESTS_FAULTS_SMALL_DISK_H_

#include <cstdint>
#include <string>

namespace cohort::testing {

// Puts an empty disk of `num_bytes` bytes, in memory, at a directory, for this process alone and those that it starts; it
// goes with them. The process must have one thread only. False if the machine does not let us.
bool MountSmallDisk(const std::string& directory, int64_t num_bytes);

// FreshDirectory in memory if the machine lets us, for tests that save a thousand times: what is there when a process is
// killed does not depend on what a sync waits for. The first call must come from a process of one thread.
std::string FreshDirectoryInMemory();

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAULTS_SMALL_DISK_H_
