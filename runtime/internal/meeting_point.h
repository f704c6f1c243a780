// File: meeting_point.h
//
// Where the ranks of a job find each other: MASTER_ADDR and MASTER_PORT, turned into a socket that listens (on the main rank)
// or into a route that is known to lead somewhere (on the others). No LibTorch: it would retry with log lines of its own.

#ifndef COHORT_RUNTIME_INTERNAL_MEETING_POINT_H_
#define COHORT_RUNTIME_INTERNAL_MEETING_POINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {

// How this process gets to the meeting point.
struct Route {
  std::string store_host;  // where to connect to, as numbers
  int store_port = 0;
  std::string local_host;  // this process's own address, as numbers, by which the others reach it
};

// A listening socket of the main rank. The caller owns `fd`.
struct MeetingPoint {
  int fd = -1;
  Route route;
};

// Local. Listens at MASTER_ADDR:MASTER_PORT, on that address alone if it is one of this machine's. It is not always: behind
// address translation, or if this machine calls itself 127.0.1.1 while others know it by a real address. Then it listens on all
// addresses of the family and tells the others the first routable one.
//
// Errors:
//   AlreadyExists    somebody listens there already
//   InvalidArgument  no address of MASTER_ADDR, or a loopback address that this machine does not have
//   others           by errno
absl::StatusOr<MeetingPoint> OpenMeetingPoint(const RankInfo& info);

// Local. Waits until something listens at MASTER_ADDR:MASTER_PORT. A name that cannot be looked up yet may be there later, so
// that is waited for as well.
//
// Errors:
//   DeadlineExceeded  nobody listened there by `deadline`: the address as tried and the last error
//   InvalidArgument   a loopback address that this machine does not have: waiting would not help
absl::StatusOr<Route> FindMeetingPoint(const RankInfo& info, absl::Time deadline);

// "localhost:29500 (127.0.0.1:29500, [::1]:29500)".
std::string DescribeMeetingPoint(const RankInfo& info);

}  // namespace cohort::internal

#endif  // COHORT_RUNTIME_INTERNAL_MEETING_POINT_H_
