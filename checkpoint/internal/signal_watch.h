// File: signal_watch.h
//
// SignalWatch: whether a signal has come to this process.

#ifndef COHORT_CHECKPOINT_INTERNAL_SIGNAL_WATCH_H_
#define COHORT_CHECKPOINT_INTERNAL_SIGNAL_WATCH_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace cohort::internal {

// Counts a signal as long as it lives. The first watch of a signal in the process installs a handler, and the last one
// puts back what was there, unless somebody else has put something else there meanwhile. System calls that the signal
// interrupts are restarted where the kernel can do that (SA_RESTART).
//
// A watch belongs to one thread; different ones may live in different threads.
class SignalWatch {
 public:
  // Errors: InvalidArgument, "OPTION=N: ...", if N is no signal, or one that cannot be caught or gone on after.
  static absl::StatusOr<std::unique_ptr<SignalWatch>> Start(int signal, std::string_view option = "signals");

  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch();

  // The handler stays when this watch goes, until the process ends.
  void LeaveInPlace() { is_left_ = true; }

  // Whether the signal has come since Start or since the last Look before the last Forget.
  bool Look();
  // What the last Look saw is done. A signal that came after it is still seen by the next one.
  void Forget() { forgotten_ = seen_; }

 private:
  explicit SignalWatch(int signal);

  const int signal_;
  uint32_t seen_, forgotten_;  // counts of arrivals
  bool is_left_ = false;
};

}  // namespace cohort::internal

#endif  // COHORT_CHECKPOINT_INTERNAL_SIGNAL_WATCH_H_
