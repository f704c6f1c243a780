// File: name_patience.h
//
// How long a rank goes on asking for an address of MASTER_ADDR when the resolver has none.

#ifndef COHORT_RUNTIME_INTERNAL_NAME_PATIENCE_H_
#define COHORT_RUNTIME_INTERNAL_NAME_PATIENCE_H_

#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {

// A name without an address is a wrong name, or one that comes later: a machine that has just started has no resolver
// yet, and a cluster may publish the name of a machine when it is ready, half a minute after a negative answer was
// cached. What the resolver says does not tell them apart. "Name or service not known" (EAI_NONAME) is said of a
// Kubernetes service whose pod is not up, and "temporary failure" (EAI_AGAIN) of every name, forever, on a machine
// without a network. What does tell is who asks, and for whom:
//
//   all ranks on one machine           3 s: nobody is to come whose name could come with them, and a resolver that is
//                                      just starting is there by then
//   several machines, rank 0           30 s: it asks for its own name, and its machine is up
//   several machines, the other ranks  no limit but the caller's deadline: rank 0's machine may come as late as that.
//                                      So that a wrong name is seen early all the same, they say after 3 s what they
//                                      ask for
//
// A name that has had an address once is right, whatever the resolver says later. One look-up may take as long as the
// system's resolver waits for its servers; that comes on top.
class NamePatience {
 public:
  enum class Advice { kAskAgain, kAskAgainAndSaySo, kGiveUp };

  // `is_host`: this rank is to listen there, as rank 0 is unless an agent has a store.
  NamePatience(const RankInfo& info, bool is_host, SteadyTime start);

  // After a look-up that found an address.
  void Found() { was_found_ = true; }
  // After one that found none. To say so is advised once.
  Advice NotFound(SteadyTime now);

 private:
  absl::Duration limit_;
  SteadyTime start_;
  bool was_found_ = false;
  bool was_said_ = false;
};

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_NAME_PATIENCE_H_
