#include "cohort/runtime/internal/exchange_store.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/mutex.h"
#include "c10/util/Exception.h"

namespace cohort::internal {

void ExchangeStore::Close() {
  absl::MutexLock lock(mutex_);
  exchange_ = nullptr;
}

absl::Status ExchangeStore::status() const {
  absl::MutexLock lock(mutex_);
  return status_;
}

// A key is followed by a space in what the ranks tell each other.
absl::Status ExchangeStore::ExchangeLocked(const std::string& key, const std::vector<uint8_t>& value) {
  if (exchange_ == nullptr) return absl::AbortedError("the store is closed");
  if (key.find(' ') != std::string::npos)
    return absl::InvalidArgumentError(absl::StrCat("a space in the key \"", key, "\""));
  ABSL_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                        exchange_(absl::StrCat(key, " ", std::string(value.begin(), value.end()))));
  for (const std::string& one : all) {
    const std::pair<std::string, std::string> entry = absl::StrSplit(one, absl::MaxSplits(' ', 1));
    values_[entry.first] = std::vector<uint8_t>(entry.second.begin(), entry.second.end());
  }
  return absl::OkStatus();
}

void ExchangeStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  absl::MutexLock lock(mutex_);
  status_.Update(ExchangeLocked(key, value));
  if (!status_.ok()) C10_THROW_ERROR(DistStoreError, status_.ToString());
}

std::vector<uint8_t> ExchangeStore::get(const std::string& key) {
  absl::MutexLock lock(mutex_);
  const auto found = values_.find(key);
  if (found == values_.end()) C10_THROW_ERROR(DistStoreError, absl::StrCat("no rank has set \"", key, "\""));
  return found->second;
}

bool ExchangeStore::check(const std::vector<std::string>& keys) {
  absl::MutexLock lock(mutex_);
  for (const std::string& key : keys) {
    if (values_.find(key) == values_.end()) return false;
  }
  return true;
}

void ExchangeStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) get(key);
}

void ExchangeStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) { wait(keys); }

int64_t ExchangeStore::getNumKeys() {
  absl::MutexLock lock(mutex_);
  return static_cast<int64_t>(values_.size());
}

c10::intrusive_ptr<c10d::Store> ExchangeStore::clone() { C10_THROW_ERROR(NotImplementedError, "clone"); }

int64_t ExchangeStore::add(const std::string&, int64_t) { C10_THROW_ERROR(NotImplementedError, "add"); }

bool ExchangeStore::deleteKey(const std::string&) { C10_THROW_ERROR(NotImplementedError, "deleteKey"); }

}  // namespace cohort::internal
