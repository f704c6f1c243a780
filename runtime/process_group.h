// File: process_group.h
//
// ProcessGroup: who am I among the ranks of a job, and how do we agree.
//
//   absl::StatusOr<std::unique_ptr<cohort::ProcessGroup>> group = cohort::InitProcessGroup();
//   ...
//   absl::Status ready = (*group)->Agree("data is loaded", LoadData());   // the same answer on every rank
//
// This header and its target need no LibTorch.

#ifndef COHORT_RUNTIME_PROCESS_GROUP_H_
#define COHORT_RUNTIME_PROCESS_GROUP_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/rank_info.h"

namespace cohort {

namespace internal {
class Backend;
struct Arrival;
}  // namespace internal

// The ranks of one job. Every method under "Collective" must be called by every rank, in the same order; a method under
// "Local" may be called at any time.
//
// Threads: one thread at a time may be in a collective method. Local methods are safe from any thread.
//
// Failure: a rank that brings an error to a collective leaves the group usable: all ranks get that error and go on.
// Every other failure poisons the group on every surviving rank: the call that meets it returns the error below, and
// every later collective returns FailedPrecondition quoting it. Nothing is retried.
//
// Errors that every collective method may return:
//   Unavailable         a rank's process died or its connection broke; names the rank. Known within a second; the end
//                       of a whole machine, which closes no connection, within half a minute.
//   DeadlineExceeded    a rank did not arrive in time; names the operation, the missing ranks and how long it waited.
//   FailedPrecondition  ranks are in different operations (who is where), a rank has left by Shutdown, or the group was
//                       poisoned before (quotes the first error).
class ProcessGroup final {
 public:
  struct Options {
    // How long a collective waits for the other ranks, unless a call says otherwise.
    absl::Duration timeout = absl::Minutes(10);
  };

  // A group of one rank: no network, no LibTorch; every collective returns at once. Whatever the environment says: in a
  // job of several ranks each would take itself for the main one. Programs ask for the following.
  static std::unique_ptr<ProcessGroup> WorldOfOne();

  // The group of a program that links no LibTorch, and so has no backend to meet others with: a world of one, unless the
  // launcher started several ranks. What links LibTorch calls InitProcessGroup instead.
  //
  // Errors:
  //   InvalidArgument  the launch environment is malformed; see rank_info.h.
  //   Unimplemented    there are several ranks; names the target that lets them meet. The same on all ranks.
  static absl::StatusOr<std::unique_ptr<ProcessGroup>> WorldOfOneFromEnvironment();

  // For InitProcessGroup and testing::ThreadGroup: takes over a connected backend.
  ProcessGroup(RankInfo info, absl_nonnull std::unique_ptr<internal::Backend> backend, Options options);

  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // Leaves the group, unless Shutdown has, without waiting for anybody. Ranks that are in a collective or come to one
  // get FailedPrecondition, naming this rank.
  ~ProcessGroup();

  // ---- Local ----

  int rank() const { return info_.rank; }
  int world_size() const { return info_.world_size; }
  int local_rank() const { return info_.local_rank; }
  int local_world_size() const { return info_.local_world_size; }
  // True on exactly one rank of the job: rank 0.
  bool is_main() const { return info_.rank == 0; }
  // True on exactly one rank of each node: local rank 0. (On every rank, if none was told its LOCAL_RANK.)
  bool is_local_main() const { return info_.local_rank == 0; }
  // "gloo", "nccl", "in-process", or "none" in a world of one.
  std::string_view backend_name() const;
  absl::Duration timeout() const { return options_.timeout; }

  // Tells the other ranks that this one cannot go on: `why`, which is not OK, poisons the group. Each rank's current or
  // next collective returns it at once, as "rank K: TEXT", instead of waiting for a rank that will not come. For what
  // goes wrong on one rank between collectives: its data cannot be read, its model threw. Where all ranks come anyway,
  // Agree tells them as well and leaves the group usable.
  //
  // Returns what the others get, or what has poisoned the group before. In a world of one nobody waits: returns
  // "rank 0: TEXT", and the group stays as it is. Waits for rank 0's answer, at most 2.5 s.
  absl::Status Abort(const absl::Status& why);

  // The seam to the tensor collectives; null in a world of one. Not for users.
  internal::Backend* absl_nullable backend() { return backend_.get(); }

  // ---- Collective ----

  // Returns OK on a rank only after every rank has called it. Runs on the data backend (gloo or nccl), so that it also
  // orders device work submitted before it. Waits at most timeout().
  absl::Status Barrier();

  // A rendezvous named `name` that a rank can reach with an error. Returns OK on every rank if every rank brought OK;
  // otherwise the same error on every rank: the code and text of the lowest rank that brought one, as "rank K: TEXT",
  // with the number of other ranks that failed too. Waits at most `timeout`.
  absl::Status Agree(std::string_view name, const absl::Status& mine);
  absl::Status Agree(std::string_view name, const absl::Status& mine, absl::Duration timeout);

  // As Agree; returns the main rank's bytes on every rank. The other ranks' bytes are ignored (bring "").
  //
  // Errors: also InvalidArgument if there are more than kMaxMessageBytes; the same on all ranks.
  absl::StatusOr<std::string> BroadcastBytes(std::string_view name, absl::StatusOr<std::string> mine);
  absl::StatusOr<std::string> BroadcastBytes(std::string_view name, absl::StatusOr<std::string> mine,
                                             absl::Duration timeout);

  // As Agree; returns on the main rank every rank's bytes, by rank, and an empty vector elsewhere. No rank may bring
  // more than `max_bytes_per_rank` (at most kMaxMessageBytes; must be equal on all ranks).
  //
  // Errors: also InvalidArgument if a rank brings more; the same on all ranks, naming the rank.
  absl::StatusOr<std::vector<std::string>> GatherBytes(std::string_view name, absl::StatusOr<std::string> mine,
                                                       int64_t max_bytes_per_rank);

  // The end of the group: returns when this rank may exit without disturbing the others, which for rank 0 is when every
  // other rank has come here or died; for the others, when rank 0 knows. In a group that has failed nobody waits. Waits
  // at most timeout(). Later collectives return FailedPrecondition; a second call returns OK at once.
  //
  // Errors: only DeadlineExceeded, naming the ranks that did not come, or rank 0. The process may exit all the same.
  absl::Status Shutdown();

  // Most bytes that one rank may bring to BroadcastBytes or GatherBytes.
  static constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;

 private:
  explicit ProcessGroup(RankInfo info);

  absl::StatusOr<std::vector<std::string>> Meet(std::string_view kind, std::string_view name,
                                                internal::Arrival arrival);

  RankInfo info_;
  Options options_;
  bool has_left_ = false;
  std::unique_ptr<internal::Backend> backend_;  // null in a world of one
};

}  // namespace cohort

#endif  // COHORT_RUNTIME_PROCESS_GROUP_H_
