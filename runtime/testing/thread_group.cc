#include "cohort/runtime/testing/thread_group.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>  // NOLINT: the standard thread is all that is needed
#include <utility>

#include "absl/base/nullability.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/in_process_backend.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::testing {

// Unwinds the body of a rank that is no more.
struct ThreadGroup::Vanished {
  absl::Status status;
};

// Counts the collectives of a rank and lets its script come true between them.
class ThreadGroup::ScriptedBackend final : public internal::Backend {
 public:
  ScriptedBackend(ThreadGroup* absl_nonnull threads, int rank, std::unique_ptr<internal::Backend> backend)
      : threads_(*threads), rank_(rank), backend_(std::move(backend)) {}

  std::string_view name() const override { return backend_->name(); }

  absl::Status Barrier(absl::Duration timeout) override {
    threads_.Follow(rank_, num_collectives_);
    absl::Status status = backend_->Barrier(timeout);
    threads_.Follow(rank_, ++num_collectives_);
    return status;
  }
  absl::StatusOr<std::vector<std::string>> Meet(internal::Arrival arrival) override {
    threads_.Follow(rank_, num_collectives_);
    absl::StatusOr<std::vector<std::string>> payloads = backend_->Meet(std::move(arrival));
    threads_.Follow(rank_, ++num_collectives_);
    return payloads;
  }
  absl::Status Leave(absl::Duration timeout) override { return backend_->Leave(timeout); }
  absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited) override {
    return backend_->Explain(name, error, waited);
  }
  absl::Status Abort(const absl::Status& why) override { return backend_->Abort(why); }

 private:
  ThreadGroup& threads_;
  const int rank_;
  const std::unique_ptr<internal::Backend> backend_;
  int num_collectives_ = 0;
};

ThreadGroup::ThreadGroup(Options options)
    : options_(options),
      script_(options.world_size),
      hub_(std::make_unique<internal::InProcessHub>(options.world_size)) {}

ThreadGroup::~ThreadGroup() = default;

void ThreadGroup::KillAfter(int rank, int num_collectives) {
  script_.at(rank) = Casualty{.fate = Fate::kDeath, .after = num_collectives};
}

void ThreadGroup::FreezeAfter(int rank, int num_collectives) {
  script_.at(rank) = Casualty{.fate = Fate::kFreeze, .after = num_collectives};
}

std::vector<absl::Status> ThreadGroup::Run(Body body) {
  {
    absl::MutexLock lock(mutex_);
    num_running_ = options_.world_size;
  }
  std::vector<absl::Status> outcomes(options_.world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    threads.emplace_back([this, rank, body, &outcome = outcomes[rank]] { outcome = RunRank(rank, body); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

absl::Status ThreadGroup::RunRank(int rank, Body body) {
  absl::Status outcome;
  try {
    int node_size = options_.ranks_per_node > 0 ? options_.ranks_per_node : options_.world_size;
    RankInfo info{.rank = rank,
                  .world_size = options_.world_size,
                  .local_rank = rank % node_size,
                  .has_local_rank = true,
                  .local_world_size = std::min(node_size, options_.world_size - rank / node_size * node_size)};
    ProcessGroup group(info, std::make_unique<ScriptedBackend>(this, rank, hub_->Connect(rank)), options_.group);
    Follow(rank, 0);
    outcome = body(group);
  } catch (Vanished& vanished) {
    outcome = std::move(vanished.status);
  }
  absl::MutexLock lock(mutex_);
  --num_running_;
  return outcome;
}

void ThreadGroup::Follow(int rank, int num_collectives) {
  if (script_[rank].has_value() && num_collectives >= script_[rank]->after) Vanish(rank);
}

void ThreadGroup::Die(const ProcessGroup& group) {
  script_[group.rank()] = Casualty{.fate = Fate::kDeath};
  Vanish(group.rank());
}

void ThreadGroup::Freeze(const ProcessGroup& group) {
  script_[group.rank()] = Casualty{.fate = Fate::kFreeze};
  Vanish(group.rank());
}

void ThreadGroup::Vanish(int rank) {
  Casualty& casualty = *script_[rank];
  const bool dies = casualty.fate == Fate::kDeath;
  if (!std::exchange(casualty.happened, true)) {
    if (dies) {
      hub_->Kill(rank);
    } else {
      hub_->Freeze(rank);
      absl::MutexLock lock(mutex_);
      ++num_frozen_;
      auto others_ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return num_running_ <= num_frozen_; };
      mutex_.Await(absl::Condition(&others_ended));
    }
  }
  throw Vanished{
      absl::CancelledError(absl::StrCat("rank ", rank, dies ? " died" : " was frozen", " by the test's script"))};
}

std::vector<absl::Status> RunRanks(int world_size, ThreadGroup::Body body) { return ThreadGroup(world_size).Run(body); }

}  // namespace cohort::testing
