// File: thread_group.h
//
// ThreadGroup: the ranks of a job as threads of a test, in milliseconds, with deaths and freezes where the test wants
// them.
//
//   cohort::testing::ThreadGroup threads(3);
//   threads.KillAfter(/*rank=*/1, /*num_collectives=*/2);
//   std::vector<absl::Status> outcomes = threads.Run([&](cohort::ProcessGroup& group) { return Train(group); });
//   EXPECT_THAT(outcomes[0], StatusIs(absl::StatusCode::kUnavailable));

#ifndef COHORT_RUNTIME_TESTING_THREAD_GROUP_H_
#define COHORT_RUNTIME_TESTING_THREAD_GROUP_H_

#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

namespace internal {
class InProcessHub;
}  // namespace internal

namespace testing {

// One group of ranks that meet in memory: everything ProcessGroup promises but the network. Testonly, and an API.
//
// A rank that dies or freezes stops where it is: its body is unwound by an exception (not a std::exception), which the
// body must let through. Code after that point does not run; destructors do, and whatever they do in the group goes
// nowhere.
class ThreadGroup {
 public:
  struct Options {
    int world_size = 2;
    // How many ranks share a node, and so count through their local ranks. 0: all.
    int ranks_per_node = 0;
    ProcessGroup::Options group;
  };

  // What a rank does. The group lives as long as the call; returning without Shutdown leaves it.
  using Body = absl::FunctionRef<absl::Status(ProcessGroup& group)>;

  explicit ThreadGroup(int world_size) : ThreadGroup(Options{.world_size = world_size, .ranks_per_node = 0, .group = {}}) {}
  explicit ThreadGroup(Options options);
  ~ThreadGroup();

  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  // Before Run: the rank dies, or freezes, when it has taken part in `num_collectives` (0: before it does anything).
  // Barrier, Agree, BroadcastBytes, GatherBytes and RunOnMain are one collective each, a save is two; Shutdown does not
  // count. The rank does not get to see how the last one went.
  void KillAfter(int rank, int num_collectives);
  void FreezeAfter(int rank, int num_collectives);

  // Runs `body` once for each rank, each in a thread of its own, and returns what they returned, by rank. Cancelled
  // stands for a rank that died or froze. Once only. Blocks until all ranks have ended; a frozen one ends when the
  // others have.
  std::vector<absl::Status> Run(Body body);

  // From the body of `group`'s rank: the rank dies, or freezes, here.
  [[noreturn]] void Die(const ProcessGroup& group);
  [[noreturn]] void Freeze(const ProcessGroup& group);

 private:
  class ScriptedBackend;
  struct Vanished;

  enum class Fate { kDeath, kFreeze };
  struct Casualty {
    Fate fate;
    int after = 0;  // how many collectives
    bool happened = false;
  };

  absl::Status RunRank(int rank, Body body);
  // Ends the calling rank, again if it has caught the exception, if its script says so.
  void Follow(int rank, int num_collectives);
  [[noreturn]] void Vanish(int rank);

  const Options options_;
  std::vector<std::optional<Casualty>> script_;  // by rank; after Run has begun each belongs to the rank's thread
  std::unique_ptr<internal::InProcessHub> hub_;
  absl::Mutex mutex_;
  int num_running_ ABSL_GUARDED_BY(mutex_) = 0;  // those that are frozen included
  int num_frozen_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A ThreadGroup of `world_size` ranks without incidents.
std::vector<absl::Status> RunRanks(int world_size, ThreadGroup::Body body);

}  // namespace testing
}  // namespace cohort

#endif  // COHORT_RUNTIME_TESTING_THREAD_GROUP_H_
