// File: switchboard.h
//
// Switchboard: lets many threads use one Coordinator.

#ifndef COHORT_RUNTIME_INTERNAL_SWITCHBOARD_H_
#define COHORT_RUNTIME_INTERNAL_SWITCHBOARD_H_

#include <deque>
#include <functional>
#include <thread>  // NOLINT: the standard thread is all that is needed

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/internal/coordinator.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {

// Serialises the events, delivers the messages in order, and tells the coordinator when time has passed. Thread-safe.
class Switchboard {
 public:
  // `deliver` is called by one thread at a time, with no lock held, so that it may cause events itself.
  using Deliver = std::function<void(Coordinator::Outgoing)>;

  Switchboard(int world_size, Deliver deliver);

  // No other method may be running. `deliver` is not called any more once this returns.
  ~Switchboard();

  Switchboard(const Switchboard&) = delete;
  Switchboard& operator=(const Switchboard&) = delete;

  // Lets `event` happen. When this returns, what it caused has been delivered, or another thread is delivering it.
  void Update(absl::FunctionRef<void(Coordinator&)> event) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void DeliverPending() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WatchTime();

  const Deliver deliver_;
  absl::Mutex mutex_;
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  std::deque<Coordinator::Outgoing> pending_ ABSL_GUARDED_BY(mutex_);
  bool delivering_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  // When the watching thread will wake up.
  SteadyTime alarm_ ABSL_GUARDED_BY(mutex_) = SteadyTime::max();
  std::thread watch_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_SWITCHBOARD_H_
