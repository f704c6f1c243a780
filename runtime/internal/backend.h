// File: backend.h
//
// Backend: the seam between ProcessGroup and what carries it. Three implementations: gloo, nccl, in-process.

#ifndef COHORT_RUNTIME_INTERNAL_BACKEND_H_
#define COHORT_RUNTIME_INTERNAL_BACKEND_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::internal {

// Which payloads a rendezvous hands back, and to whom.
enum class Delivery {
  kNothing,    // none
  kMainToAll,  // the main rank's, to every rank
  kAllToMain,  // every rank's, by rank, to the main rank; none to the others
  kAllToAll,   // every rank's, by rank, to every rank; at most kMaxPayloadBytes together
};

// Most bytes that one rank may bring to a rendezvous.
inline constexpr int64_t kMaxPayloadBytes = int64_t{64} << 20;

// What one rank brings to a rendezvous.
struct Arrival {
  // What the rank is doing, in words that its user knows: `Agree("data is loaded")`. Ranks whose operations are not the
  // same letter for letter are in different operations.
  std::string operation;
  Delivery delivery = Delivery::kNothing;
  absl::Status status;     // this rank's error, if it has one; its payload is not delivered then
  std::string payload;     // at most kMaxPayloadBytes
  absl::Duration timeout;  // counted from this rank's arrival
};

// One rank's end of a group. The errors are those of ProcessGroup.
//
// Every blocking method returns by its deadline, plus at most 2.5 s in which it learns who is missing, and never
// throws. One thread at a time.
class Backend {
 public:
  virtual ~Backend() = default;

  // "gloo", "nccl" or "in-process".
  virtual std::string_view name() const = 0;

  // Data plane. Collective. Returns OK only after every rank has called it.
  virtual absl::Status Barrier(absl::Duration timeout) = 0;

  // Control plane: CPU-side whatever the data plane is. Collective. Returns the payloads that `arrival.delivery`
  // promises this rank.
  virtual absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) = 0;

  // Says goodbye; on rank 0 waits for the others to do so. See ProcessGroup::Shutdown.
  virtual absl::Status Leave(absl::Duration timeout) = 0;

  // A data-plane operation called `name` failed with `error` after waiting for `waited`; `error` is DeadlineExceeded if
  // it ran out of time. Asks the control plane for the cause that all ranks will hear (who died, who is missing, who is
  // in which other operation), poisons the group with it, and returns it.
  virtual absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited) = 0;

  // Poisons the group with `why`, an error of this rank alone, and returns what all ranks hear. Thread-safe. See
  // ProcessGroup::Abort.
  virtual absl::Status Abort(const absl::Status& why) = 0;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_BACKEND_H_
