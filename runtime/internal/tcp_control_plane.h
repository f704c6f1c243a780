// File: tcp_control_plane.h
//
// How the ranks meet over TCP and get a ControlPlane each.

#ifndef COHORT_RUNTIME_INTERNAL_TCP_CONTROL_PLANE_H_
#define COHORT_RUNTIME_INTERNAL_TCP_CONTROL_PLANE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/socket.h"

namespace cohort::internal {

struct MeetingOptions {
  int rank = 0;
  int world_size = 1;  // at least 2
  // What all ranks of this run have in common, and those of another run have not. At most kMaxTextBytes / 8.
  std::string run_id;
  // How long to wait for the other ranks. The earliest deadline of all counts.
  absl::Duration timeout;
  // What this rank tells the others about itself. At most kMaxTextBytes.
  std::string facts;
  // Where the ranks were told to meet, for the text of errors: "127.0.0.1:29500".
  std::string meeting_point;
};

// What every rank knows of a rank after the meeting.
struct Peer {
  int64_t pid = 0;
  std::string machine;  // equal if and only if two ranks run on the same boot of the same kernel
  std::string facts;    // MeetingOptions::facts
};

struct Meeting {
  absl_nonnull std::unique_ptr<ControlPlane> control_plane;
  std::vector<Peer> peers;  // by rank
};

// Makes `endpoint`, a text without meaning to anybody but JoinMeeting, known to the other ranks and to nobody else: who
// knows it can be taken for a rank.
using PublishEndpoint = absl::FunctionRef<absl::Status(std::string_view endpoint)>;

// Returns what rank 0 has published, waiting for it at most `timeout`.
using LookUpEndpoint = absl::FunctionRef<absl::StatusOr<std::string>(absl::Duration timeout)>;

// Collective: HostMeeting on rank 0, JoinMeeting on the others. Blocks until all ranks are there. Rank 0 listens at
// `host_address`, a numeric address of its machine that the others can reach, at a port of the kernel's choice.
//
// Errors, and nothing is left behind:
//   InvalidArgument     ranks disagree about the world size or the run; this rank is held by another process already
//   DeadlineExceeded    ranks did not come: lists them
//   Unavailable         a rank died while meeting
//   FailedPrecondition  whoever listens there does not speak as rank 0 would
//   and what `publish` and `look_up` return
absl::StatusOr<Meeting> HostMeeting(const MeetingOptions& options, const std::string& host_address,
                                    PublishEndpoint publish);
absl::StatusOr<Meeting> JoinMeeting(const MeetingOptions& options, LookUpEndpoint look_up);

// The same at a place that all ranks know beforehand: rank 0 listens there already, and the others have connected to
// it. Nothing needs to be published then, and nothing tells a rank from a stranger who knows the run.
absl::StatusOr<Meeting> HostMeeting(const MeetingOptions& options, Listener socket);
absl::StatusOr<Meeting> JoinMeeting(const MeetingOptions& options, UniqueFd connection);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_TCP_CONTROL_PLANE_H_
