#include "cohort/runtime/internal/meeting_point.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {
namespace {

// A port that nobody answers from (a firewall that drops) must not use up the time of the other addresses.
constexpr absl::Duration kConnectTimeout = absl::Seconds(5);
constexpr absl::Duration kFirstPause = absl::Milliseconds(5);
constexpr absl::Duration kLongestPause = absl::Milliseconds(250);

std::string Tried(const std::vector<Endpoint>& endpoints) {
  return absl::StrJoin(endpoints, ", ", [](std::string* out, const Endpoint& endpoint) {
    out->append(endpoint.ToString());
  });
}

std::string MasterName(const RankInfo& info) {
  return absl::StrCat("MASTER_ADDR=", info.master_addr, " MASTER_PORT=", info.master_port);
}

// True if `host` means this machine on any machine, as opposed to a name that happens to lead to loopback here.
bool IsLoopbackByName(const std::string& host, const Endpoint& endpoint) {
  return endpoint.is_loopback() && (host == "localhost" || host == endpoint.host());
}

// Sets `fd` to a socket that listens at `endpoint` and returns 0, or returns an errno.
// SO_REUSEADDR: a launcher may hold the port with a bound socket that never listens, and a job that restarts on its port finds
// connections of its predecessor in TIME_WAIT. Two that listen are still refused, which is why this listens at once.
int Listen(const Endpoint& endpoint, int& fd) {
  const int on = 1;
  fd = socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      bind(fd, endpoint.address(), endpoint.size()) == 0 && listen(fd, SOMAXCONN) == 0) {
    return 0;
  }
  const int error = errno;
  if (fd >= 0) {
    close(fd);
  }
  return error;
}

absl::Status ListenError(const RankInfo& info, const Endpoint& endpoint, int error) {
  const std::string text = absl::StrCat("the main rank cannot listen on ", endpoint.ToString(), " (", MasterName(info), ")");
  return error == EADDRINUSE ? absl::AlreadyExistsError(absl::StrCat(text, ": the port is in use"))
                             : absl::ErrnoToStatus(error, text);
}

bool IsNoAddressOfOurs(int error) {
  return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == ENETUNREACH || error == EHOSTUNREACH;
}

// Returns once `fd` is connected to `endpoint`, or the errno that kept it from that.
int Connect(int fd, const Endpoint& endpoint, absl::Time deadline) {
  if (connect(fd, endpoint.address(), endpoint.size()) == 0) {
    return 0;
  }
  if (errno != EINPROGRESS) {
    return errno;
  }
  pollfd poll_fd = {.fd = fd, .events = POLLOUT, .revents = 0};
  const absl::Duration wait = std::clamp(deadline - absl::Now(), absl::ZeroDuration(), kConnectTimeout);
  const int ready = poll(&poll_fd, 1, static_cast<int>(absl::ToInt64Milliseconds(wait)));
  if (ready < 0) {
    return errno;
  }
  if (ready == 0) {
    return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ? errno : error;
}

// Sets `route` and returns 0 if somebody listens at `endpoint`, or returns an errno.
int Probe(const Endpoint& endpoint, absl::Time deadline, Route& route) {
  const UniqueFd fd(socket(endpoint.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) {
    return errno;
  }
  if (const int error = Connect(fd.get(), endpoint, deadline); error != 0) {
    return error;
  }
  const absl::StatusOr<Endpoint> local = Endpoint::OfSocket(fd.get());
  // On loopback a port that nobody listens on can be given to this very socket as its own port, and TCP then connects it to itself.
  if (!local.ok() || *local == endpoint) {
    return ECONNREFUSED;
  }
  route = {.store_host = endpoint.host(), .store_port = endpoint.port(), .local_host = local->host()};
  return 0;
}

struct Attempt {
  std::optional<Route> route;
  std::string error;
  bool is_hopeless = false;  // this machine has no way to any of the addresses, and will not get one
};

Attempt TryOnce(const RankInfo& info, absl::Time deadline) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = Resolve(info.master_addr, info.master_port);
  if (!endpoints.ok()) {
    return {.route = {}, .error = std::string(endpoints.status().message())};
  }
  Attempt attempt = {.route = {}, .error = "", .is_hopeless = true};
  for (const Endpoint& endpoint : *endpoints) {
    Route route;
    const int error = Probe(endpoint, deadline, route);
    if (error == 0) {
      return {.route = std::move(route), .error = ""};
    }
    absl::StrAppend(&attempt.error, attempt.error.empty() ? "" : ", ", endpoint.ToString(), ": ", std::strerror(error));
    attempt.is_hopeless = attempt.is_hopeless && endpoint.is_loopback() && IsNoAddressOfOurs(error);
  }
  return attempt;
}

absl::StatusOr<MeetingPoint> ListenEverywhere(const RankInfo& info, int family) {
  ABSL_ASSIGN_OR_RETURN(const Endpoint routable, FirstRoutableAddress(family));
  const Endpoint everywhere = Endpoint::Wildcard(family, info.master_port);
  int fd = -1;
  if (const int error = Listen(everywhere, fd); error != 0) {
    return ListenError(info, everywhere, error);
  }
  return MeetingPoint{.fd = fd, .route = {family == AF_INET ? "127.0.0.1" : "::1", info.master_port, routable.host()}};
}

}  // namespace

std::string DescribeMeetingPoint(const RankInfo& info) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = Resolve(info.master_addr, info.master_port);
  return absl::StrCat(MasterName(info), " (", endpoints.ok() ? Tried(*endpoints) : endpoints.status().message(), ")");
}

absl::StatusOr<MeetingPoint> OpenMeetingPoint(const RankInfo& info) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = Resolve(info.master_addr, info.master_port);
  if (!endpoints.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(MasterName(info), ": ", endpoints.status().message()));
  }
  const bool spans_nodes = info.local_world_size < info.world_size;
  for (const Endpoint& endpoint : *endpoints) {
    if (spans_nodes && endpoint.is_loopback() && !IsLoopbackByName(info.master_addr, endpoint)) {
      continue;  // the others know this name by another address
    }
    int fd = -1;
    const int error = Listen(endpoint, fd);
    if (error == 0) {
      return MeetingPoint{.fd = fd, .route = {endpoint.host(), endpoint.port(), endpoint.host()}};
    }
    if (!IsNoAddressOfOurs(error)) {
      return ListenError(info, endpoint, error);
    }
  }
  const Endpoint& first = endpoints->front();
  if (IsLoopbackByName(info.master_addr, first)) {
    return absl::InvalidArgumentError(
        absl::StrCat(MasterName(info), ": this machine has no such address; tried ", Tried(*endpoints)));
  }
  return ListenEverywhere(info, first.family());
}

absl::StatusOr<Route> FindMeetingPoint(const RankInfo& info, absl::Time deadline) {
  const absl::Time start = absl::Now();
  absl::Duration pause = kFirstPause;
  while (true) {
    const Attempt attempt = TryOnce(info, deadline);
    if (attempt.route.has_value()) {
      return *attempt.route;
    }
    if (attempt.is_hopeless) {
      return absl::InvalidArgumentError(
          absl::StrCat(MasterName(info), ": this machine has no such address; tried ", attempt.error));
    }
    if (absl::Now() + pause >= deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          info.use_agent_store ? "the launcher's store" : "rank 0", " did not come to ", MasterName(info), " within ",
          absl::FormatDuration(absl::Now() - start), " (world size ", info.world_size, "); last: ", attempt.error));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace cohort::internal
