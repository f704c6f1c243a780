#include "cohort/runtime/internal/meeting_point.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/name_patience.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/waiting_notice.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {
namespace {

// An address that nobody answers from (a firewall that drops) must not use up the time of the others.
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kProbeTimeout = absl::Seconds(2);
constexpr absl::Duration kFirstPause = absl::Milliseconds(5);
constexpr absl::Duration kLongestPause = absl::Milliseconds(250);

constexpr std::string_view kAnotherPort = "MASTER_PORT, or the launcher's --master-port, chooses another";

// True if `host` means this machine on any machine, as opposed to a name that happens to lead to loopback here.
bool IsLoopbackByName(const std::string& host, const Endpoint& endpoint) {
  return endpoint.is_loopback() && (host == "localhost" || host == endpoint.host());
}

// Makes `listener` listen at `endpoint` and returns 0, or returns an errno.
// SO_REUSEADDR: a launcher may hold the port with a bound socket that never listens, and a job that restarts on its
// port finds connections of its predecessor in TIME_WAIT. Two that listen are still refused, which is why this listens
// at once.
int Listen(const Endpoint& endpoint, Listener& listener) {
  const int on = 1;
  UniqueFd fd(socket(endpoint.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open() || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(fd.get(), endpoint.address(), endpoint.size()) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    return errno;
  }
  listener = {.fd = std::move(fd), .port = endpoint.port()};
  return 0;
}

absl::Status ListenError(const RankInfo& info, const Endpoint& endpoint, int error) {
  const std::string text =
      absl::StrCat("the main rank cannot listen on ", endpoint.ToString(), " (", MeetingPointName(info), ")");
  return error == EADDRINUSE ? absl::AlreadyExistsError(
                                   absl::StrCat(text, ": the port is in use, perhaps by another job; ", kAnotherPort))
                             : absl::ErrnoToStatus(error, text);
}

bool IsNoAddressOfOurs(int error) { return error == EADDRNOTAVAIL || error == EAFNOSUPPORT; }

bool IsOurs(const Endpoint& endpoint) {
  const UniqueFd fd(socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  return fd.is_open() &&
         (bind(fd.get(), endpoint.WithPort(0).address(), endpoint.size()) == 0 || !IsNoAddressOfOurs(errno));
}

absl::Status NoSuchAddress(const RankInfo& info, const std::string& tried) {
  return absl::InvalidArgumentError(absl::StrCat(MeetingPointName(info), ": this machine has no such address; tried ",
                                                 tried, "; it has: ", DescribeInterfaces()));
}

// What to do after a look-up that failed with `reason`: to go on is OK.
absl::Status Consult(const RankInfo& info, NamePatience& patience, const std::string& reason) {
  using Advice = NamePatience::Advice;
  const Advice advice = patience.NotFound(SteadyNow());
  const std::string text = absl::StrCat(MeetingPointName(info), ": ", reason);
  if (advice == Advice::kGiveUp) return absl::InvalidArgumentError(text);
  // One rank of a machine speaks for all.
  if (advice == Advice::kAskAgainAndSaySo && info.local_rank == 0) {
    std::fprintf(stderr, "cohort: %s; rank %d goes on asking\n", text.c_str(), info.rank);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Endpoint>> AddressesOfHost(const RankInfo& info, SteadyTime deadline, Resolver resolve) {
  NamePatience patience(info, /*is_host=*/true, SteadyNow());
  while (true) {
    absl::StatusOr<std::vector<Endpoint>> endpoints = resolve(info.master_addr, info.master_port);
    if (endpoints.ok()) return endpoints;
    const std::string reason(endpoints.status().message());
    ABSL_RETURN_IF_ERROR(Consult(info, patience, reason));
    if (SteadyNow() >= deadline) return absl::InvalidArgumentError(absl::StrCat(MeetingPointName(info), ": ", reason));
    absl::SleepFor(std::min(kLongestPause, Between(SteadyNow(), deadline)));
  }
}

absl::Status NotOneHost(const RankInfo& info, const Endpoint& endpoint) {
  return absl::InvalidArgumentError(
      absl::StrCat(MeetingPointName(info), ": ", endpoint.host(),
                   " is not the address of one machine; 127.0.0.1 will do if all ranks are on "
                   "this one, which has: ",
                   DescribeInterfaces()));
}

bool SpansNodes(const RankInfo& info) { return info.local_world_size < info.world_size; }

// See MeetingPoint::hint. `endpoints`: what MASTER_ADDR leads to here.
std::string Hint(const RankInfo& info, absl::Span<const Endpoint> endpoints) {
  if (!SpansNodes(info)) return "";
  for (const Endpoint& endpoint : endpoints) {
    if (!endpoint.is_loopback()) return "";
  }
  return absl::StrCat("; ", endpoints.front().host(),
                      " is loopback, which leads each machine to itself alone: with several machines MASTER_ADDR must "
                      "be an address of rank 0's that all of them reach");
}

// Ranks of one machine find each other there, or nowhere.
absl::Status CheckLoopback(const RankInfo& info, const Endpoint& endpoint) {
  if (!endpoint.is_loopback() || IsLoopbackUp()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      MeetingPointName(info), ": ", endpoint.host(),
      " is loopback, and that interface is down here (ip link set lo up); there is: ", DescribeInterfaces()));
}

// OK if a connection to one of `endpoints`, none of which is this machine's, gets somewhere: to the listener, if some
// router translates addresses.
absl::Status CheckThatOneLeadsHere(const RankInfo& info, const std::vector<Endpoint>& endpoints) {
  const SteadyTime deadline = After(SteadyNow(), kProbeTimeout);
  std::vector<std::string> errors;
  for (const Endpoint& endpoint : endpoints) {
    const absl::Status status = ConnectTo(endpoint.host(), endpoint.port(), deadline).status();
    if (status.ok()) return status;
    errors.emplace_back(status.message());
  }
  return NoSuchAddress(info, absl::StrJoin(errors, "; "));
}

absl::StatusOr<MeetingPoint> ListenEverywhere(const RankInfo& info, const std::vector<Endpoint>& endpoints) {
  const int family = endpoints.front().family();
  const Endpoint everywhere = Endpoint::Wildcard(family, info.master_port);
  MeetingPoint point;
  if (const int error = Listen(everywhere, point.listener); error != 0) return ListenError(info, everywhere, error);
  if (!SpansNodes(info)) {
    ABSL_RETURN_IF_ERROR(CheckThatOneLeadsHere(info, endpoints));
  }
  ABSL_ASSIGN_OR_RETURN(const Endpoint routable, FirstRoutableAddress(family));
  point.local_host = routable.host();
  return point;
}

absl::StatusOr<Visit> ConnectOnce(const RankInfo& info, const Endpoint& endpoint, SteadyTime deadline) {
  ABSL_ASSIGN_OR_RETURN(UniqueFd fd, ConnectTo(endpoint.host(), endpoint.port(),
                                               std::min(deadline, After(SteadyNow(), kConnectTimeout))));
  ABSL_ASSIGN_OR_RETURN(const Endpoint local, Endpoint::OfSocket(fd.get()));
  // On loopback, a port that nobody listens on can be given to this very socket as its own port, and TCP connects it to
  // itself.
  if (local == endpoint)
    return absl::UnavailableError(absl::StrCat("connect to ", endpoint.ToString(), ": nobody listens there"));
  Visit visit = {.connection = std::move(fd), .local_host = local.host(), .hint = "", .remote = endpoint};
  if (SpansNodes(info) && endpoint.is_loopback() && !IsLoopbackByName(info.master_addr, endpoint)) {
    // The master is on this machine, which knows it by another address than the others do.
    const absl::StatusOr<Endpoint> routable = FirstRoutableAddress(endpoint.family());
    if (routable.ok()) visit.local_host = routable->host();
  } else {
    visit.hint = Hint(info, {endpoint});
  }
  return visit;
}

struct Attempt {
  std::optional<Visit> visit;
  bool has_address = true;
  std::string error;
  std::string hint;
  absl::Status hopeless;  // not OK: this machine has no way to any of the addresses, and will not get one
};

Attempt TryOnce(const RankInfo& info, SteadyTime deadline, Resolver resolve) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = resolve(info.master_addr, info.master_port);
  if (!endpoints.ok()) return {.has_address = false, .error = std::string(endpoints.status().message())};
  Attempt attempt;
  bool is_hopeless = true;
  std::vector<std::string> errors;
  for (const Endpoint& endpoint : *endpoints) {
    if (!endpoint.is_one_host()) return {.hopeless = NotOneHost(info, endpoint)};
    if (const absl::Status up = CheckLoopback(info, endpoint); !up.ok()) return {.hopeless = up};
    absl::StatusOr<Visit> visit = ConnectOnce(info, endpoint, deadline);
    if (visit.ok()) return {.visit = *std::move(visit)};
    errors.emplace_back(visit.status().message());
    is_hopeless = is_hopeless && endpoint.is_loopback() && !IsOurs(endpoint);
  }
  attempt.error = absl::StrJoin(errors, "; ");
  attempt.hint = Hint(info, *endpoints);
  if (is_hopeless) attempt.hopeless = NoSuchAddress(info, attempt.error);
  return attempt;
}

}  // namespace

std::string MeetingPointName(const RankInfo& info) {
  return absl::StrCat("MASTER_ADDR=", info.master_addr, " MASTER_PORT=", info.master_port,
                      info.master_derived_from.empty() ? "" : ", derived from the variables of ",
                      info.master_derived_from);
}

absl::StatusOr<MeetingPoint> OpenMeetingPoint(const RankInfo& info, SteadyTime deadline, Resolver resolve) {
  ABSL_ASSIGN_OR_RETURN(const std::vector<Endpoint> endpoints, AddressesOfHost(info, deadline, resolve));
  std::vector<std::string> tried;
  for (const Endpoint& endpoint : endpoints) {
    if (!endpoint.is_one_host()) return NotOneHost(info, endpoint);
    if (SpansNodes(info) && endpoint.is_loopback() && !IsLoopbackByName(info.master_addr, endpoint)) {
      continue;  // the others know this name by another address
    }
    ABSL_RETURN_IF_ERROR(CheckLoopback(info, endpoint));
    MeetingPoint point = {.local_host = endpoint.host()};
    const int error = Listen(endpoint, point.listener);
    if (error == 0) {
      point.hint = Hint(info, {endpoint});
      return point;
    }
    if (!IsNoAddressOfOurs(error)) return ListenError(info, endpoint, error);
    tried.push_back(endpoint.ToString());
  }
  const Endpoint& first = endpoints.front();
  if (IsLoopbackByName(info.master_addr, first)) return NoSuchAddress(info, absl::StrJoin(tried, ", "));
  return ListenEverywhere(info, endpoints);
}

absl::StatusOr<Visit> VisitMeetingPoint(const RankInfo& info, SteadyTime deadline, Resolver resolve) {
  const SteadyTime start = SteadyNow();
  NamePatience patience(info, /*is_host=*/false, start);
  // One rank of a machine speaks for all; not rank 0, which is the one that does not come.
  std::optional<WaitingNotice> notice;
  if (info.local_rank == 0 || info.rank == 1) {
    notice.emplace(info.rank, deadline, [&] {
      return absl::StrCat(info.use_agent_store ? "the launcher's store" : "rank 0", " to listen at ",
                          MeetingPointName(info));
    });
  }
  absl::Duration pause = kFirstPause;
  while (true) {
    Attempt attempt = TryOnce(info, deadline, resolve);
    if (attempt.visit.has_value()) return *std::move(attempt.visit);
    ABSL_RETURN_IF_ERROR(attempt.hopeless);
    if (attempt.has_address) {
      patience.Found();
    } else {
      ABSL_RETURN_IF_ERROR(Consult(info, patience, attempt.error));
    }
    absl::SleepFor(std::min(pause, Between(SteadyNow(), deadline)));
    pause = std::min(2 * pause, kLongestPause);
    if (SteadyNow() >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the meeting waited ", absl::FormatDuration(absl::Trunc(Between(start, SteadyNow()), absl::Milliseconds(1))),
          "; missing: ", info.use_agent_store ? "the launcher's store" : "rank 0", ", which does not listen at ",
          MeetingPointName(info), " (world size ", info.world_size, "; ", attempt.error, ")", attempt.hint));
    }
  }
}

}  // namespace cohort::internal
