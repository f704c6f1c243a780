// File: control_plane.h
//
// ControlPlane: one rank's half of the conversation with the coordinator.

#ifndef COHORT_RUNTIME_INTERNAL_CONTROL_PLANE_H_
#define COHORT_RUNTIME_INTERNAL_CONTROL_PLANE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"

namespace cohort::internal {

// Gets messages to the coordinator and back. Implementations: over TCP (tcp_control_plane.h) and in memory.
class ControlLink {
 public:
  // What comes back. Called by one thread at a time, with no lock held.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnMessage(ControlMessage message) = 0;
    // The coordinator cannot be reached any more. Nothing follows.
    virtual void OnLost(const absl::Status& why) = 0;
  };

  // The listener is not called any more once the destructor returns.
  virtual ~ControlLink() = default;

  // Called once, before anything else.
  virtual void Start(Listener* absl_nonnull listener) = 0;

  // Never waits for anybody. A message that cannot be sent is dropped; OnLost tells, if it has not yet. Any thread.
  virtual void Send(ControlMessage message) = 0;
};

// What a Backend needs to keep the promises of ProcessGroup: rendezvous over the link, and the cause of failures.
//
// The methods under "Collective" are for one thread at a time, the others are thread-safe. The errors are those of
// ProcessGroup: whatever poisons the group is returned as it is by the first call that meets it, and quoted in
// FailedPrecondition by all later ones.
class ControlPlane final : private ControlLink::Listener {
 public:
  // How long after a deadline of its own a rank still waits for the coordinator, which must first find out who is
  // missing. Then it is the coordinator, on rank 0, that does not answer.
  static constexpr absl::Duration kCoordinatorGrace = absl::Milliseconds(2500);

  static constexpr absl::Duration kHandlerGrace = absl::Seconds(5);

  explicit ControlPlane(absl_nonnull std::unique_ptr<ControlLink> link);

  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // Leaves the group, if Leave was not called, without waiting.
  ~ControlPlane() override;

  // ---- Collective ----

  // See Backend.
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival);
  absl::Status Leave(absl::Duration timeout);
  absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited);

  // A data-plane operation called `name` begins: notes it, so that another rank can be told where this one is. Local;
  // returns an error if the group is poisoned. ExitData must follow its success, after Explain if the operation failed.
  absl::Status EnterData(std::string_view name);
  void ExitData();

  // ---- Local ----

  // See Backend.
  absl::Status Abort(const absl::Status& why);

  // What has poisoned the group; OK while nothing has. Returning it here does not count as having met it.
  absl::Status first_error() const;

  // `handler` is called with the cause, once, when the group is poisoned, usually from a thread of the link: to break
  // off what the data plane waits for, and to leave the error for the launcher. It must neither wait nor call back. No
  // collective or Abort returns the poison before the handler has returned, because the process may end then without
  // another word; but a file system that hangs holds nobody up for more than kHandlerGrace. If the group is poisoned
  // already, it is called before this returns; it is not called any more once the destructor returns.
  void SetPoisonHandler(std::function<void(const absl::Status& cause)> handler);

 private:
  void OnMessage(ControlMessage message) override;
  void OnLost(const absl::Status& why) override;

  // Poisons this rank's half. The first cause counts.
  void SetPoison(absl::Status cause) ABSL_LOCKS_EXCLUDED(mutex_);
  bool IsPoisoned() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !poison_.ok(); }
  // The error of the call that meets the poison, once the handler has run.
  absl::Status MeetPoison() ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status MeetPoisonLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins `operation`, if one may begin now. Exit ends it.
  absl::Status Enter(std::string operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Exit() ABSL_LOCKS_EXCLUDED(mutex_);

  mutable absl::Mutex mutex_;
  absl::Status poison_ ABSL_GUARDED_BY(mutex_);
  bool poison_handled_ ABSL_GUARDED_BY(mutex_) = false;
  bool poison_met_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(const absl::Status&)> poison_handler_ ABSL_GUARDED_BY(mutex_);
  bool has_left_ ABSL_GUARDED_BY(mutex_) = false;
  bool link_lost_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t num_data_operations_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_busy_ ABSL_GUARDED_BY(mutex_) = false;   // a thread is in an operation
  std::string operation_ ABSL_GUARDED_BY(mutex_);  // what it is still waiting in; empty: nothing
  std::optional<Outcome> outcome_ ABSL_GUARDED_BY(mutex_);
  std::optional<Farewell> farewell_ ABSL_GUARDED_BY(mutex_);

  // Last, so that it goes first: its threads use the rest.
  const std::unique_ptr<ControlLink> link_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_CONTROL_PLANE_H_
