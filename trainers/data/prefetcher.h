// File: prefetcher.h
//
// Prefetcher: makes the next batches in a thread of its own while this one is used.

#ifndef COHORT_TRAINERS_DATA_PREFETCHER_H_
#define COHORT_TRAINERS_DATA_PREFETCHER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstddef>
#include <deque>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/main_only.h"

namespace cohort {

// What was made is handed out in the order in which it was made. At most `depth` are ready or in the making, so that
// memory is bounded; with depth 0 there is no thread, and each is made when it is asked for.
//
// Not for several threads at once. The destructor waits for the one that is in the making, and throws away what is
// ready.
template <typename T>
class Prefetcher {
 public:
  using Made = absl::StatusOr<std::optional<T>>;  // nullopt: that was the last one

  // Calls `make` again and again, never twice at once, until it returns nullopt or an error, or throws.
  Prefetcher(int depth, absl::AnyInvocable<Made()> make) : depth_(depth), make_(std::move(make)) {
    if (depth_ <= 0) return;
    try {
      thread_ = std::thread([this] { Run(); });
    } catch (const std::system_error& e) {
      last_ = absl::ErrnoToStatus(e.code().value(), "start the thread that reads ahead");
    }
  }

  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  ~Prefetcher() {
    {
      absl::MutexLock lock(mutex_);
      is_stopped_ = true;
    }
    if (thread_.joinable()) thread_.join();
  }

  // Blocks until the next one is made. After the last one, nullopt, and after an error that error, again and again.
  //
  // Errors: those of `make`, when all that was made before is handed out; what it threw, as InvokeUser says; no thread.
  Made Next() {
    if (last_.has_value()) return last_->ok() ? Made(std::nullopt) : Made(*last_);
    Made made = depth_ <= 0 ? MakeOne() : TakeOne();
    if (IsLast(made)) last_ = made.status();
    return made;
  }

 private:
  static bool IsLast(const Made& made) { return !made.ok() || !made->has_value(); }

  Made MakeOne() {
    Made made = std::nullopt;
    const absl::Status thrown = InvokeUser([&] {
      made = make_();
      return absl::OkStatus();
    });
    if (!thrown.ok()) made = thrown;
    return made;
  }

  Made TakeOne() {
    absl::MutexLock lock(mutex_, absl::Condition(this, &Prefetcher::IsSomeReady));
    Made made = std::move(ready_.front());
    ready_.pop_front();
    return made;
  }

  void Run() {
    while (true) {
      {
        absl::MutexLock lock(mutex_, absl::Condition(this, &Prefetcher::IsSomeWanted));
        if (is_stopped_) return;
      }
      Made made = MakeOne();
      const bool is_last = IsLast(made);
      absl::MutexLock lock(mutex_);
      ready_.push_back(std::move(made));
      if (is_last) return;
    }
  }

  bool IsSomeReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !ready_.empty(); }
  bool IsSomeWanted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return is_stopped_ || ready_.size() < static_cast<size_t>(depth_);
  }

  const int depth_;
  absl::AnyInvocable<Made()> make_;   // the thread's, if there is one
  std::optional<absl::Status> last_;  // OK: the end; otherwise what ended it

  absl::Mutex mutex_;
  std::deque<Made> ready_ ABSL_GUARDED_BY(mutex_);
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_PREFETCHER_H_
