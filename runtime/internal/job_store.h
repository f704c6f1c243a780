// File: job_store.h
//
// JobStore: a c10d::TCPStore that speaks Status. Only what cannot do without has one: torchrun's agent serves one, and
// NCCL wants one. TCPStore asks the DNS for the name of every address that it meets and complains on stderr if there is
// none, listens to anybody, and does not say who is missing; so the ranks meet by other means.

#ifndef COHORT_RUNTIME_INTERNAL_JOB_STORE_H_
#define COHORT_RUNTIME_INTERNAL_JOB_STORE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "c10/util/intrusive_ptr.h"
#include "cohort/runtime/internal/socket.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace cohort::internal {

// All keys live under the prefix given at the start, so that a job never reads what another one, or its own
// predecessor, has left in a store that outlives it. Thread-safe, but while one thread waits in Get the others wait
// too.
class JobStore {
 public:
  // Serves a store from `listener` at `host`, this machine's address as numbers, and connects to it. `timeout` is also
  // that of LibTorch's own waits in the store.
  static absl::StatusOr<std::unique_ptr<JobStore>> Serve(const std::string& host, Listener listener,
                                                         std::string_view prefix, absl::Duration timeout);
  // Connects to a store that is there already.
  static absl::StatusOr<std::unique_ptr<JobStore>> Connect(const std::string& host, int port, std::string_view prefix,
                                                           absl::Duration timeout);

  explicit JobStore(c10::intrusive_ptr<c10d::Store> store);
  ~JobStore();

  // Sets `key`, which nobody may have set before.
  //
  // Errors: AlreadyExists; Unavailable if the store has gone.
  absl::Status SetOnce(const std::string& key, const std::string& value);

  // Waits until somebody has set `key`.
  //
  // Errors: DeadlineExceeded; Unavailable if the store has gone.
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout);

  const c10::intrusive_ptr<c10d::Store>& torch_store() const { return store_; }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_JOB_STORE_H_
