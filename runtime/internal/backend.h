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

// Which bytes a control-plane rendezvous hands back, and to whom.
enum class Delivery { kNothing, kMainToAll, kAllToMain };

// What one rank brings to a rendezvous.
struct Arrival {
  std::string name;               // the same on all ranks, or they are in different operations
  Delivery delivery = Delivery::kNothing;
  absl::Status status;            // this rank's error, if it has one
  std::string payload;
  absl::Duration timeout;         // counted from this rank's arrival
};

// Every blocking method returns by its deadline (plus at most a second to learn who is missing) and never throws. The errors are those of ProcessGroup.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  // Data plane.
  virtual absl::Status Barrier(absl::Duration timeout) = 0;

  // Control plane: CPU-side whatever the data plane is. Payloads by rank (kAllToMain, on the main rank), one payload (kMainToAll), or none.
  virtual absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) = 0;

  // Says goodbye; on rank 0 waits for the others (see ProcessGroup::Shutdown).
  virtual absl::Status Leave(absl::Duration timeout) = 0;

  // A data-plane operation called `name` failed with `error` after waiting `waited`: asks the control plane for the cause that all ranks will
  // hear (who died, who is missing, who is in which other operation), poisons the group with it, and returns it.
  virtual absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited) = 0;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_BACKEND_H_
