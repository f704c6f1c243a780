#include "cohort/runtime/internal/switchboard.h"

#include <utility>

#include "absl/time/time.h"

namespace cohort::internal {

Switchboard::Switchboard(int world_size, Deliver deliver)
    : deliver_(std::move(deliver)), coordinator_(world_size), watch_([this] { WatchTime(); }) {}

Switchboard::~Switchboard() {
  {
    absl::MutexLock lock(mutex_);
    stopping_ = true;
  }
  watch_.join();
}

void Switchboard::Update(absl::FunctionRef<void(Coordinator&)> event) {
  absl::MutexLock lock(mutex_);
  event(coordinator_);
  DeliverPending();
}

void Switchboard::DeliverPending() {
  for (Coordinator::Outgoing& outgoing : coordinator_.TakeOutbox()) pending_.push_back(std::move(outgoing));
  // Whoever is delivering takes these as well: two threads would mix up the order.
  if (delivering_) return;
  delivering_ = true;
  while (!pending_.empty()) {
    Coordinator::Outgoing outgoing = std::move(pending_.front());
    pending_.pop_front();
    mutex_.unlock();
    deliver_(std::move(outgoing));
    mutex_.lock();
  }
  delivering_ = false;
}

void Switchboard::WatchTime() {
  absl::MutexLock lock(mutex_);
  while (!stopping_) {
    // A deadline that moves away wakes nobody: that is every rendezvous that succeeds.
    alarm_ = coordinator_.next_deadline();
    auto earlier = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return stopping_ || coordinator_.next_deadline() < alarm_;
    };
    absl::Duration sleep = alarm_ == SteadyTime::max() ? absl::InfiniteDuration() : Between(SteadyNow(), alarm_);
    mutex_.AwaitWithTimeout(absl::Condition(&earlier), sleep);
    coordinator_.Tick(SteadyNow());
    DeliverPending();
  }
}

}  // namespace cohort::internal
