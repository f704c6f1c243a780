// File: exchange_store.h
//
// ExchangeStore: what ProcessGroupGloo needs of a c10d::Store, without a server.

#ifndef COHORT_RUNTIME_INTERNAL_EXCHANGE_STORE_H_
#define COHORT_RUNTIME_INTERNAL_EXCHANGE_STORE_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "torch/csrc/distributed/c10d/Store.hpp"

namespace cohort::internal {

// When the ranks connect, each sets one key and reads those of all others, in the same order. So each `set` is an
// exchange, in which every rank tells every other what it sets, and afterwards every key is there. What happens to a
// rank meanwhile is known at once.
class ExchangeStore final : public c10d::Store {
 public:
  // Collective: gives every rank the bytes of all, by rank.
  using Exchange = std::function<absl::StatusOr<std::vector<std::string>>(std::string mine)>;

  explicit ExchangeStore(Exchange exchange) : exchange_(std::move(exchange)) {}

  // Waits until no exchange is going on and lets no further one begin.
  void Close();

  // Why an exchange failed; OK if none did. The store itself throws c10::DistStoreError, into LibTorch.
  absl::Status status() const;

  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  // Errors: DistStoreError if nobody has set `key`: there is nobody to wait for.
  std::vector<uint8_t> get(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  int64_t getNumKeys() override;

  // Not needed: NotImplementedError.
  c10::intrusive_ptr<Store> clone() override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;

 private:
  absl::Status ExchangeLocked(const std::string& key, const std::vector<uint8_t>& value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  Exchange exchange_ ABSL_GUARDED_BY(mutex_);  // null once closed
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<uint8_t>> values_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_EXCHANGE_STORE_H_
