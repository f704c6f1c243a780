// Why a protocol of our own, and neither the store nor the data plane:
//
// * A rank that dies is known and named at once. Each rank holds one connection to rank 0, which its kernel closes when
//   the process ends, however it ends; a store would need heartbeats, and a data plane knows only that something broke.
//   (A child that is forked without exec keeps its parent's connection open, and so keeps its death from being seen.)
// * A star has one place that sees all arrivals in one order. So all ranks can be told the same, and the whole failure
//   table is one state machine (coordinator.cc).
// * A rendezvous of n ranks takes 2(n-1) messages and one round trip. Measured between processes on loopback, p50: 30
//   us for 2 ranks and 80 us for 4; a barrier through c10d's TCPStore takes 184 and 383 us there, MPI_Barrier over TCP
//   17 and 76 us. So the simple way of waiting, a thread that reads and a condition that wakes, is good enough, and the
//   caller need not poll.
// * It works whatever the data plane is, also while that is stuck, and links no LibTorch.
//
// The price is rank 0's n-1 connections. Thousands are no problem for one poller; beyond, a tree of coordinators would
// be the next step.

#include "cohort/runtime/internal/control_plane.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/overload.h"
#include "absl/log/absl_check.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"

namespace cohort::internal {
namespace {

absl::Status CoordinatorIsSilent(std::string_view operation, absl::Duration waited) {
  return absl::DeadlineExceededError(
      absl::StrCat(operation, " waited ", absl::FormatDuration(waited), "; missing: rank 0 (does not answer)"));
}

}  // namespace

ControlPlane::ControlPlane(absl_nonnull std::unique_ptr<ControlLink> link) : link_(std::move(link)) {
  link_->Start(this);
}

ControlPlane::~ControlPlane() {
  bool has_left;
  {
    absl::MutexLock lock(mutex_);
    has_left = std::exchange(has_left_, true);
  }
  if (!has_left) link_->Send(Goodbye{});
}

absl::StatusOr<std::vector<std::string>> ControlPlane::Meet(Arrival arrival) {
  ABSL_CHECK_LE(arrival.operation.size(), kMaxTextBytes);
  ABSL_CHECK_LE(static_cast<int64_t>(arrival.payload.size()), kMaxPayloadBytes);
  const std::string operation = arrival.operation;
  const absl::Duration timeout = arrival.timeout;
  uint64_t generation;
  {
    absl::MutexLock lock(mutex_);
    ABSL_RETURN_IF_ERROR(Enter(operation));
    generation = ++generation_;
    outcome_.reset();
  }
  absl::Cleanup exit = [this] { Exit(); };
  link_->Send(Arrive{.generation = generation, .arrival = std::move(arrival)});
  {
    absl::MutexLock lock(mutex_);
    auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return outcome_.has_value() || IsPoisoned(); };
    mutex_.AwaitWithTimeout(absl::Condition(&over), timeout + kCoordinatorGrace);
    if (outcome_.has_value()) {
      if (!outcome_->status.ok()) return std::move(outcome_->status);
      return std::move(outcome_->payloads);
    }
  }
  SetPoison(CoordinatorIsSilent(operation, timeout));
  return MeetPoison();
}

absl::Status ControlPlane::Leave(absl::Duration timeout) {
  bool poisoned;
  {
    absl::MutexLock lock(mutex_);
    if (std::exchange(has_left_, true)) return absl::OkStatus();
    poisoned = IsPoisoned();
  }
  link_->Send(Goodbye{.timeout = timeout});
  if (poisoned) return absl::OkStatus();

  absl::MutexLock lock(mutex_);
  auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return farewell_.has_value() || link_lost_; };
  mutex_.AwaitWithTimeout(absl::Condition(&over), timeout + kCoordinatorGrace);
  if (farewell_.has_value()) return farewell_->status;
  if (link_lost_) return absl::OkStatus();  // whom it would disturb is gone
  return CoordinatorIsSilent("Shutdown", timeout);
}

absl::Status ControlPlane::Explain(std::string_view name, const absl::Status& error, absl::Duration waited) {
  std::string operation;
  {
    absl::MutexLock lock(mutex_);
    operation = operation_.empty() ? std::string(name) : operation_;
  }
  link_->Send(Report{.operation = operation, .error = error, .waited = waited});
  {
    absl::MutexLock lock(mutex_);
    auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return IsPoisoned(); };
    mutex_.AwaitWithTimeout(absl::Condition(&over), kCoordinatorGrace);
  }
  SetPoison(absl::IsDeadlineExceeded(error) ? CoordinatorIsSilent(operation, waited)
                                            : absl::UnavailableError(absl::StrCat(operation, ": ", error.message(),
                                                                                  "; and rank 0 does not answer")));
  return MeetPoison();
}

absl::Status ControlPlane::Abort(const absl::Status& why) {
  link_->Send(internal::Abort{.why = why});
  {
    absl::MutexLock lock(mutex_);
    if (has_left_) return absl::FailedPreconditionError("this rank has left the group by Shutdown");
    auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return IsPoisoned(); };
    mutex_.AwaitWithTimeout(absl::Condition(&over), kCoordinatorGrace);
  }
  SetPoison(absl::Status(why.code(), absl::StrCat(why.message(), "; and rank 0 does not answer")));
  return MeetPoison();
}

absl::Status ControlPlane::EnterData(std::string_view name) {
  absl::MutexLock lock(mutex_);
  ABSL_RETURN_IF_ERROR(Enter(absl::StrCat(name, " (data operation ", num_data_operations_ + 1, ")")));
  ++num_data_operations_;
  return absl::OkStatus();
}

void ControlPlane::ExitData() { Exit(); }

absl::Status ControlPlane::first_error() const {
  absl::MutexLock lock(mutex_);
  return poison_;
}

void ControlPlane::SetPoisonHandler(std::function<void(const absl::Status&)> handler) {
  absl::Status poison;
  {
    absl::MutexLock lock(mutex_);
    poison = poison_;
    if (poison.ok()) {
      poison_handler_ = std::move(handler);
      return;
    }
  }
  handler(poison);
}

void ControlPlane::OnMessage(ControlMessage message) {
  std::visit(
      absl::Overload(
          [this](Outcome& outcome) {
            absl::MutexLock lock(mutex_);
            if (outcome.generation != generation_) return;
            outcome_ = std::move(outcome);
            operation_.clear();  // here and now, for who asks before the caller has woken up
          },
          [this](Poison& poison) { SetPoison(std::move(poison.cause)); },
          [this](WhereAreYou& question) {
            Here here{.inquiry = question.inquiry};
            {
              absl::MutexLock lock(mutex_);
              here.operation = operation_;
            }
            link_->Send(std::move(here));
          },
          [this](Farewell& farewell) {
            absl::MutexLock lock(mutex_);
            farewell_ = std::move(farewell);
          },
          [this](auto&) { SetPoison(absl::UnavailableError("rank 0 speaks as if it were not the coordinator")); }),
      message);
}

void ControlPlane::OnLost(const absl::Status& why) {
  {
    absl::MutexLock lock(mutex_);
    link_lost_ = true;
    if (has_left_) return;
  }
  SetPoison(why);
}

void ControlPlane::SetPoison(absl::Status cause) {
  std::function<void(const absl::Status&)> handler;
  {
    absl::MutexLock lock(mutex_);
    if (IsPoisoned()) return;
    poison_ = cause;
    handler = std::exchange(poison_handler_, nullptr);
    poison_handled_ = handler == nullptr;
  }
  if (handler == nullptr) return;
  handler(cause);
  absl::MutexLock lock(mutex_);
  poison_handled_ = true;
}

absl::Status ControlPlane::Enter(std::string operation) {
  if (has_left_) return absl::FailedPreconditionError("this rank has left the group by Shutdown");
  if (IsPoisoned()) return MeetPoisonLocked();
  if (std::exchange(is_busy_, true)) {
    return absl::FailedPreconditionError(absl::StrCat(operation, ": another thread is in ",
                                                      operation_.empty() ? "a collective" : operation_,
                                                      "; only one at a time may be in one"));
  }
  operation_ = std::move(operation);
  return absl::OkStatus();
}

void ControlPlane::Exit() {
  absl::MutexLock lock(mutex_);
  is_busy_ = false;
  operation_.clear();
}

absl::Status ControlPlane::MeetPoison() {
  absl::MutexLock lock(mutex_);
  return MeetPoisonLocked();
}

absl::Status ControlPlane::MeetPoisonLocked() {
  mutex_.AwaitWithTimeout(absl::Condition(&poison_handled_), kHandlerGrace);
  if (!std::exchange(poison_met_, true)) return poison_;
  return absl::FailedPreconditionError(absl::StrCat("the group has failed before: ", poison_.ToString()));
}

}  // namespace cohort::internal
