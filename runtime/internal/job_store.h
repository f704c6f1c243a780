// File: job_store.h
//
// JobStore: the key-value store through which the ranks of a job find each other, a c10d::TCPStore that speaks Status.

#ifndef COHORT_RUNTIME_INTERNAL_JOB_STORE_H_
#define COHORT_RUNTIME_INTERNAL_JOB_STORE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/internal/meeting_point.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace cohort::internal {

// Keys live under the prefix given at the start, so that a job never reads what another one, or its own predecessor, has left
// in a store that outlives it. Thread-safe, but one waiting Get makes the others wait.
class JobStore {
 public:
  // Serves the store from `point`, whose socket it takes over whatever happens, and connects to it.
  static absl::StatusOr<std::unique_ptr<JobStore>> Serve(const MeetingPoint& point, std::string_view prefix,
                                                         absl::Time deadline);
  // Connects to a store that listens already.
  static absl::StatusOr<std::unique_ptr<JobStore>> Connect(const Route& route, std::string_view prefix, absl::Time deadline);

  explicit JobStore(c10::intrusive_ptr<c10d::Store> store);
  ~JobStore();

  // Sets `key`, which nobody may have set before.
  //
  // Errors: AlreadyExists; Unavailable if the store has gone.
  absl::Status SetOnce(const std::string& key, const std::string& value);

  // Waits until somebody has set `key`.
  //
  // Errors: DeadlineExceeded; Unavailable if the store has gone.
  absl::StatusOr<std::string> Get(const std::string& key, absl::Time deadline);

  // For the LibTorch backends. Its own waits end after the time that was left at the start.
  const c10::intrusive_ptr<c10d::Store>& torch_store() const { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_JOB_STORE_H_
