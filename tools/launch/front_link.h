// File: front_link.h

#ifndef COHORT_TOOLS_LAUNCH_FRONT_LINK_H_
#define COHORT_TOOLS_LAUNCH_FRONT_LINK_H_

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// How the process that looks after the ranks hears from the one in front: of each signal that the latter got, in order
// and none twice, and of its death. Signals themselves would not do: whoever signals all processes of a job (a batch
// system, systemd) would be heard twice, and the kernel makes one of two that wait.
class FrontLink {
 public:
  struct Ends;

  // Errors: ResourceExhausted, Internal (no pipe).
  static absl::StatusOr<Ends> Open();

  // No process is in front: nothing is ever heard.
  FrontLink() = default;

  // Readable once there is something to hear. -1 if there is no process in front.
  int fd() const { return pipe_.get(); }

  // The next signal, or nullopt. Does not block.
  std::optional<int> NextSignal();

  // Whether NextSignal() has found that the process in front is dead.
  bool is_broken() const { return is_broken_; }

 private:
  explicit FrontLink(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  UniqueFd pipe_;
  bool is_broken_ = false;
};

// The other end. It must be open in the process in front alone.
class FrontLinkSender {
 public:
  explicit FrontLinkSender(UniqueFd pipe) : pipe_(std::move(pipe)) {}

  // Does not block. False if nobody hears.
  bool Send(int signal);
  void Close() { pipe_.reset(); }

 private:
  UniqueFd pipe_;
};

struct FrontLink::Ends {
  FrontLink receiver;
  FrontLinkSender sender;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_FRONT_LINK_H_
