// File: coordinator.h
//
// Coordinator: the one place that knows where every rank is, and decides what all of them hear.

#ifndef COHORT_RUNTIME_INTERNAL_COORDINATOR_H_
#define COHORT_RUNTIME_INTERNAL_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {

// A state machine: events in, messages out. It has no sockets, no threads and no clock, so that every row of the
// failure table is a plain unit test. Thread-compatible.
//
// Every event may put messages into the outbox; the caller delivers them, in order, before the next event or soon
// after.
class Coordinator {
 public:
  struct Outgoing {
    std::vector<int> to;
    ControlMessage message;
  };

  // How long a failed operation waits for the news that a rank has died, which a broken data connection may outrun.
  static constexpr absl::Duration kDeathGrace = absl::Milliseconds(300);
  // How long a rank has to say where it is. One that does not is frozen.
  static constexpr absl::Duration kInquiryGrace = absl::Milliseconds(500);

  explicit Coordinator(int world_size);

  // ---- Events ----

  // The rank is there, as process `pid`. Only once a rank.
  void Join(int rank, int64_t pid);

  // The rank, which has joined, says `message`. After its Goodbye nothing counts any more.
  //
  // Errors: InvalidArgument if no rank in its right mind would say that now. Nothing has changed; disconnect the rank.
  absl::Status Handle(int rank, ControlMessage message, SteadyTime now);

  // Nothing more will come from the rank.
  void Disconnect(int rank);

  // Poisons the group for a reason that the caller knows.
  void Fail(absl::Status cause);

  // Time has passed. To be called at next_deadline() or later.
  void Tick(SteadyTime now);

  // ---- State ----

  // SteadyTime::max() if nothing waits for time to pass.
  SteadyTime next_deadline() const;

  // The process of a rank that has joined, whatever became of it since; nullopt before.
  std::optional<int64_t> pid(int rank) const;
  bool all_have_joined() const { return num_joined_ == static_cast<int>(ranks_.size()); }

  std::vector<Outgoing> TakeOutbox();

 private:
  enum class Presence { kAbsent, kPresent, kLeft, kDead };

  struct Rank {
    Presence presence = Presence::kAbsent;
    int64_t pid = 0;
    uint64_t generation = 0;         // of its last rendezvous
    std::optional<Arrival> arrival;  // at the open rendezvous
  };

  // The open rendezvous. What the ranks bring to it lies in their `arrival`.
  struct Rendezvous {
    int opener = 0;  // the rank that came first
    int num_arrived = 0;
    SteadyTime opened;
    SteadyTime deadline;  // the earliest of those that have arrived
  };

  // An operation has failed, and its cause is being looked for.
  struct Inquiry {
    std::string operation;
    absl::Duration waited;
    absl::Status broken;  // what the data plane reported before its deadline; OK if time ran out
    std::vector<std::optional<std::string>> positions;  // the operation of each rank; nullopt if not known
    SteadyTime deadline;
  };

  absl::Status HandleArrive(int rank, Arrive message, SteadyTime now);
  void HandleReport(int rank, Report message, SteadyTime now);
  absl::Status HandleAbort(int rank, const Abort& message);
  void HandleHere(int rank, const Here& message);
  void HandleGoodbye(int rank, const Goodbye& message, SteadyTime now);

  void CloseRendezvous();
  void DeliverPayloads(Delivery delivery);
  void CheckFarewell(SteadyTime now);

  void StartInquiry(std::string operation, absl::Duration waited, absl::Status broken, SteadyTime now);
  void SetPosition(int rank, std::string operation);
  void EndInquiryIfAnswered();
  absl::Status Verdict() const;

  absl::Status DifferentOperations(const std::vector<std::optional<std::string>>& positions) const;
  absl::Status SomebodyHasLeft(std::string_view operation) const;
  std::vector<int> RanksThatAre(Presence presence) const;
  void Send(std::vector<int> to, ControlMessage message);

  std::vector<Rank> ranks_;
  int num_joined_ = 0;
  int num_left_ = 0;
  std::optional<Rendezvous> rendezvous_;
  std::optional<Inquiry> inquiry_;
  uint64_t num_inquiries_ = 0;
  absl::Status poison_;
  // Set while rank 0 waits for the others to leave.
  std::optional<SteadyTime> farewell_deadline_;
  std::vector<Outgoing> outbox_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_COORDINATOR_H_
