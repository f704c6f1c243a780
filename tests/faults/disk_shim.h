// File: disk_shim.h
//
// DiskShim: stands between this process and the kernel, where a real disk is slow, fails, or sees the process killed.
//
// A program that links this library has its open, write, pwrite, ftruncate, fsync, close, rename, mkdir, symlink, unlink
// and rmdir replaced, wherever in the process they are called from, LibTorch included. What is tested stays a black box:
// no line of it knows.

#ifndef COHORT_TESTS_FAULTS_DISK_SHIM_H_
#define COHORT_TESTS_FAULTS_DISK_SHIM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::testing {

// One call that concerned something below the watched directory, or the directory itself.
struct DiskCall {
  // "create" and "open for writing" are calls of open; "fsync directory" is one of fsync. The others are named after
  // the function.
  std::string operation;
  std::string path;      // the new one, of a rename
  int error = 0;         // errno, or 0
  int64_t ended_ns = 0;  // MonotonicNanoseconds() at its return
};

// One at a time; the process may call from any thread.
class DiskShim {
 public:
  // From now until it is destroyed, looks at calls below `directory` (absolute, without symlinks).
  explicit DiskShim(std::string_view directory);
  ~DiskShim();
  DiskShim(const DiskShim&) = delete;
  DiskShim& operator=(const DiskShim&) = delete;

  // Before the `n`-th (from 1; 0 is each) call of `operation` is done, calls `hook`. If that returns an errno other than
  // 0, the call is not done and fails with it. An empty operation is any. `hook` may block, or not return at all.
  void Before(std::string_view operation, int n, std::function<int(const DiskCall&)> hook);

  // From now the disk takes no more than `num_bytes` more: the write that goes beyond writes what fits, and the next one
  // calls `when_full` and fails with the errno that it returns. What is overwritten or removed gives no room back.
  void LimitBytes(int64_t num_bytes, std::function<int()> when_full);
  // The same with ENOSPC.
  void LimitBytes(int64_t num_bytes);

  // The calls so far, in the order of their return.
  std::vector<DiskCall> Calls() const;

  // As Calls(), "OPERATION NAME" each, with names that hold random numbers as "TEMPORARY", "STEP", "REMOVED" and "LATEST".
  std::vector<std::string> Names() const;
};

// A clock that all processes of this machine share.
int64_t MonotonicNanoseconds();

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAULTS_DISK_SHIM_H_
