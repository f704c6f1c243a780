// The meeting.
//
// 1. Rank 0 listens at a port of the kernel's choice, draws a token, and publishes both. Only who can read what was
//    published, which is one of this job's ranks, knows the token: a port alone could be found by anybody.
// 2. The others look it up, connect, and say Hello with the token. Rank 0 drops connections that it has not heard from
//    if there are too many, so who is dropped before it has heard anything comes again. A rank 0 that has died does not
//    listen any more, which ends that at once.
// 3. From here on the meeting is a rendezvous like any other, to which each rank brings what it has to say about
//    itself: who is missing at the deadline, who died meanwhile, who came with which error is decided where it always
//    is.
//
// Where all ranks know the place beforehand, rank 0 listens there and there is nothing to publish. Then only the run's
// name tells a rank from a stranger, which is no less than c10d's own store asks for.

#include "cohort/runtime/internal/tcp_control_plane.h"

#include <errno.h>
#include <sys/random.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status_macros.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/control_message.h"
#include "cohort/runtime/internal/rank_names.h"
#include "cohort/runtime/internal/socket.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/tcp_host.h"
#include "cohort/runtime/internal/tcp_link.h"
#include "cohort/runtime/internal/waiting_notice.h"

namespace cohort::internal {
namespace {

// Before the next attempt to connect.
constexpr absl::Duration kPause = absl::Milliseconds(50);

// What rank 0 publishes.
struct Publication {
  std::string address;
  int port = 0;
  std::string token;
};

// Not a hash of anything that could be guessed.
absl::StatusOr<std::string> DrawToken() {
  std::string bytes(16, '\0');
  size_t drawn = 0;
  while (drawn < bytes.size()) {
    ssize_t size = getrandom(bytes.data() + drawn, bytes.size() - drawn, 0);
    if (size < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "getrandom");
    if (size > 0) drawn += size;
  }
  return absl::BytesToHexString(bytes);
}

absl::StatusOr<Publication> ParsePublication(std::string_view text) {
  std::vector<std::string_view> parts = absl::StrSplit(text, ' ');
  Publication endpoint;
  if (parts.size() != 3 || !absl::SimpleAtoi(parts[1], &endpoint.port) || endpoint.port < 1 || endpoint.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("what rank 0 published is no endpoint: \"", absl::CHexEscape(text.substr(0, 100)), "\""));
  }
  endpoint.address = std::string(parts[0]);
  endpoint.token = std::string(parts[2]);
  return endpoint;
}

// The kernel's name for this boot of it. Containers on one machine share it, and share its devices.
std::string MachineId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string EncodePeer(const Peer& peer) { return absl::StrCat(peer.pid, " ", peer.machine, " ", peer.facts); }

absl::StatusOr<Peer> DecodePeer(std::string_view text) {
  std::pair<std::string_view, std::string_view> pid = absl::StrSplit(text, absl::MaxSplits(' ', 1));
  std::pair<std::string_view, std::string_view> rest = absl::StrSplit(pid.second, absl::MaxSplits(' ', 1));
  Peer peer{.machine = std::string(rest.first), .facts = std::string(rest.second)};
  if (!absl::SimpleAtoi(pid.first, &peer.pid))
    return absl::InternalError("a rank introduces itself without a process id");
  return peer;
}

absl::Status AtMeetingPoint(const absl::Status& status, const MeetingOptions& options) {
  return absl::Status(status.code(), absl::StrCat(status.message(), " (world size ", options.world_size,
                                                  ", meeting at ", options.meeting_point, ")"));
}

absl::Status RankZeroIsMissing(const MeetingOptions& options, const absl::Status& why) {
  return AtMeetingPoint(
      absl::DeadlineExceededError(absl::StrCat("the meeting waited ", absl::FormatDuration(options.timeout),
                                               "; missing: rank 0: ", why.message())),
      options);
}

absl::StatusOr<std::vector<Peer>> Meet(const MeetingOptions& options, ControlPlane& control_plane,
                                       SteadyTime deadline) {
  absl::StatusOr<std::vector<std::string>> introductions = control_plane.Meet({
      .operation = "the meeting",
      .delivery = Delivery::kAllToAll,
      .status = absl::OkStatus(),
      .payload = EncodePeer({.pid = getpid(), .machine = MachineId(), .facts = options.facts}),
      .timeout = Between(SteadyNow(), deadline),
  });
  if (!introductions.ok()) return AtMeetingPoint(introductions.status(), options);
  std::vector<Peer> peers;
  for (const std::string& introduction : *introductions) {
    ABSL_ASSIGN_OR_RETURN(peers.emplace_back(), DecodePeer(introduction));
  }
  return peers;
}

// Rank 0 listens before it publishes, so a refusal is rare: its machine may have too many connections waiting.
absl::StatusOr<UniqueFd> Connect(const Publication& endpoint, SteadyTime deadline) {
  while (true) {
    absl::StatusOr<UniqueFd> connection = ConnectTo(endpoint.address, endpoint.port, deadline);
    if (connection.ok() || absl::IsInvalidArgument(connection.status())) return connection;
    if (SteadyNow() + absl::ToChronoNanoseconds(kPause) >= deadline) return connection;
    absl::SleepFor(kPause);
  }
}

absl::StatusOr<Meeting> MeetAsHost(const MeetingOptions& options, Listener socket, std::string token,
                                   SteadyTime deadline) {
  ABSL_ASSIGN_OR_RETURN(
      std::unique_ptr<TcpHost> host,
      TcpHost::Create({.world_size = options.world_size, .token = std::move(token), .run_id = options.run_id},
                      std::move(socket)));
  const TcpHost& ranks = *host;
  Meeting meeting{.control_plane = std::make_unique<ControlPlane>(std::move(host)), .peers = {}};
  const WaitingNotice notice(0, deadline, [&] {
    const std::vector<int> missing = ranks.MissingRanks();
    return missing.empty() ? "" : absl::StrCat(RankNames(missing), " at ", options.meeting_point);
  });
  ABSL_ASSIGN_OR_RETURN(meeting.peers, Meet(options, *meeting.control_plane, deadline));
  return meeting;
}

absl::StatusOr<Meeting> MeetAsGuest(const MeetingOptions& options, UniqueFd connection, std::string token,
                                    SteadyTime deadline) {
  while (true) {
    ABSL_ASSIGN_OR_RETURN(std::unique_ptr<TcpLink> link,
                          TcpLink::Create(std::move(connection), {.token = token,
                                                                  .rank = options.rank,
                                                                  .world_size = options.world_size,
                                                                  .run_id = options.run_id,
                                                                  .pid = getpid()}));
    const TcpLink& wire = *link;
    const RemoteAddress& remote = wire.remote();
    Meeting meeting{.control_plane = std::make_unique<ControlPlane>(std::move(link)), .peers = {}};
    absl::StatusOr<std::vector<Peer>> peers = Meet(options, *meeting.control_plane, deadline);
    if (peers.ok()) {
      if (peers->size() != static_cast<size_t>(options.world_size)) return AtMeetingPoint(NotRankZero(remote), options);
      meeting.peers = *std::move(peers);
      return meeting;
    }
    if (!wire.was_dropped()) return peers.status();
    if (SteadyNow() + absl::ToChronoNanoseconds(kPause) >= deadline) {
      return RankZeroIsMissing(options, absl::UnavailableError("what listens there ends connections without a word"));
    }
    absl::SleepFor(kPause);
    absl::StatusOr<UniqueFd> next = ConnectTo(remote.host, remote.port, deadline);
    if (!next.ok()) return peers.status();
    connection = *std::move(next);
  }
}

}  // namespace

absl::StatusOr<Meeting> HostMeeting(const MeetingOptions& options, const std::string& host_address,
                                    PublishEndpoint publish) {
  SteadyTime deadline = After(SteadyNow(), options.timeout);
  ABSL_ASSIGN_OR_RETURN(std::string token, DrawToken());
  ABSL_ASSIGN_OR_RETURN(Listener socket, ListenAt(host_address));
  // Who reads this may connect at once: the socket listens already, and what arrives waits in it.
  ABSL_RETURN_IF_ERROR(publish(absl::StrCat(host_address, " ", socket.port, " ", token)));
  return MeetAsHost(options, std::move(socket), std::move(token), deadline);
}

absl::StatusOr<Meeting> HostMeeting(const MeetingOptions& options, Listener socket) {
  return MeetAsHost(options, std::move(socket), "", After(SteadyNow(), options.timeout));
}

absl::StatusOr<Meeting> JoinMeeting(const MeetingOptions& options, LookUpEndpoint look_up) {
  SteadyTime deadline = After(SteadyNow(), options.timeout);
  absl::StatusOr<std::string> published = look_up(options.timeout);
  if (absl::IsDeadlineExceeded(published.status())) return RankZeroIsMissing(options, published.status());
  ABSL_RETURN_IF_ERROR(published.status());
  ABSL_ASSIGN_OR_RETURN(Publication endpoint, ParsePublication(*published));
  absl::StatusOr<UniqueFd> connection = Connect(endpoint, deadline);
  if (!connection.ok()) {
    if (absl::IsInvalidArgument(connection.status())) return AtMeetingPoint(connection.status(), options);
    return RankZeroIsMissing(options, connection.status());
  }
  return MeetAsGuest(options, *std::move(connection), std::move(endpoint.token), deadline);
}

absl::StatusOr<Meeting> JoinMeeting(const MeetingOptions& options, UniqueFd connection) {
  return MeetAsGuest(options, std::move(connection), "", After(SteadyNow(), options.timeout));
}

}  // namespace cohort::internal
