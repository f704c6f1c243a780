// File: waiting_notice.h

#ifndef COHORT_RUNTIME_INTERNAL_WAITING_NOTICE_H_
#define COHORT_RUNTIME_INTERNAL_WAITING_NOTICE_H_

#include <functional>
#include <string>
#include <thread>  // NOLINT: the standard thread is all that is needed

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {

// As long as it lives: says on stderr that somebody waits, and for whom, so that a person can tell it from a hang. The first
// time after 10 s, then whenever twice the time is over. Not thread-safe.
class WaitingNotice {
 public:
  // "cohort: rank `rank` has waited 10s for WHAT; 4m50s left", with WHAT of `describe`, which is called in a thread of this
  // object's own and must be safe for that. Nothing is said after `deadline`, nor if `describe` returns "".
  WaitingNotice(int rank, SteadyTime deadline, std::function<std::string()> describe);
  WaitingNotice(const WaitingNotice&) = delete;
  WaitingNotice& operator=(const WaitingNotice&) = delete;
  ~WaitingNotice();

 private:
  void Run(int rank, SteadyTime deadline, const std::function<std::string()>& describe);

  absl::Notification is_over_;
  std::thread thread_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_WAITING_NOTICE_H_
