// File: meeting_point.h
//
// Where the ranks of a job find each other: MASTER_ADDR and MASTER_PORT, turned into a socket that listens (on the main
// rank) or is connected to it (on the others).

#ifndef COHORT_RUNTIME_INTERNAL_MEETING_POINT_H_
#define COHORT_RUNTIME_INTERNAL_MEETING_POINT_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {

struct MeetingPoint {
  Listener listener;
  // This machine's address by which the others reach it, as numbers.
  std::string local_host;
  // What an error about ranks that did not come should end with: nothing, or "; " and that loopback leads each machine
  // to itself. The ranks may be on one machine all the same, on which somebody tries out what several do.
  std::string hint;
};

// Resolve(), or what a test puts in its place.
using Resolver = absl::FunctionRef<absl::StatusOr<std::vector<Endpoint>>(const std::string& host, int port)>;

// A connection to the meeting point.
struct Visit {
  UniqueFd connection;
  // The same two, and the meeting point's own address.
  std::string local_host;
  std::string hint;
  Endpoint remote;
};

// Local. Listens at MASTER_ADDR:MASTER_PORT, on that address alone if it is one of this machine's. It is not always:
// behind address translation, or if this machine calls itself 127.0.1.1 while others know it by a real address. Then it
// listens on all addresses of the family and tells the others the first routable one. If all ranks are on this machine it
// makes sure first, within 2 s, that MASTER_ADDR leads here. A name that has no address yet is asked for again until
// `deadline`, but for 3 s at most if all ranks are on this machine and otherwise 30 s: name_patience.h says why.
//
// Errors:
//   AlreadyExists    somebody listens there already
//   InvalidArgument  no address of MASTER_ADDR; one that is not of one host; a loopback address that this machine does not
//                    have, or while that interface is down; or, where all ranks are on this machine, one that leads
//                    elsewhere (lists those it has)
//   others           by errno
absl::StatusOr<MeetingPoint> OpenMeetingPoint(const RankInfo& info, SteadyTime deadline, Resolver resolve = Resolve);

// Local. Connects to MASTER_ADDR:MASTER_PORT as soon as something listens there. A name that cannot be looked up yet
// may be there later, so that is waited for as well: for 3 s if all ranks are on this machine, otherwise until
// `deadline`, with a line on stderr after 3 s (of local rank 0): name_patience.h says why.
//
// Errors:
//   DeadlineExceeded  nobody listened there by `deadline`: the addresses as tried, and what came of it. If there are
//                     several machines and all addresses are loopback, it says that they lead to this machine alone
//   InvalidArgument   no address of MASTER_ADDR for 3 s, where all ranks are on this machine; a loopback address that
//                     it does not have, or while that interface is down; or one that is not of one host: waiting would
//                     not help
absl::StatusOr<Visit> VisitMeetingPoint(const RankInfo& info, SteadyTime deadline, Resolver resolve = Resolve);

// "MASTER_ADDR=localhost MASTER_PORT=29500", and whether one of them was derived.
std::string MeetingPointName(const RankInfo& info);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_MEETING_POINT_H_
