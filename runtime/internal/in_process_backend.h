// File: in_process_backend.h
//
// InProcessHub: ranks that are threads of one process, over the same coordinator as the real ones, in memory.

#ifndef COHORT_RUNTIME_INTERNAL_IN_PROCESS_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_IN_PROCESS_BACKEND_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/coordinator.h"
#include "cohort/runtime/internal/switchboard.h"

namespace cohort::internal {

// What the ranks of one in-process group have in common. Must outlive their backends. Thread-safe.
class InProcessHub {
 public:
  explicit InProcessHub(int world_size);

  // The backend of a rank, or what another backend stands on; once for each.
  std::unique_ptr<Backend> Connect(int rank);
  std::unique_ptr<ControlPlane> ConnectControlPlane(int rank);

  // The rank's process dies, as the others see it.
  void Kill(int rank);

  // The rank's process stops: the others hear nothing of it, and it of them.
  void Freeze(int rank);

 private:
  class Link;

  // Where a rank's messages go.
  struct Slot {
    absl::Mutex mutex;  // held while the listener is called
    ControlLink::Listener* absl_nullable listener ABSL_GUARDED_BY(mutex) = nullptr;
    std::atomic<bool> cut_off = false;
  };

  void Deliver(const Coordinator::Outgoing& outgoing);

  std::vector<Slot> slots_;  // by rank
  Switchboard switchboard_;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_IN_PROCESS_BACKEND_H_
