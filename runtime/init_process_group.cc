// How the ranks meet.
//
// 1. Options and environment are checked, before any socket is opened. A world of one is ready then.
// 2. Rank 0 opens the job's store at MASTER_ADDR:MASTER_PORT, and the others wait until something listens there. Under an agent's
//    store all of them wait. Nothing but this step looks up a name.
// 3. The ranks meet on the control plane (tcp_control_plane.cc), which rank 0 publishes in the store. From here on a rank that dies
//    or does not come is named, to all that are there.
// 4. At the meeting each rank tells all others what it is and has. All draw the same conclusion from it, which backend on which
//    devices, so an error is the same on all ranks and comes at once.
// 5. The backend connects its own way, through the store.

#include "cohort/runtime/init_process_group.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend_choice.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/gloo_backend.h"
#include "cohort/runtime/internal/job_store.h"
#include "cohort/runtime/internal/meeting_point.h"
#include "cohort/runtime/internal/nccl_backend.h"
#include "cohort/runtime/internal/tcp_control_plane.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"

namespace cohort {
namespace {

using internal::BackendChoice;
using internal::JobStore;
using internal::Meeting;
using internal::MeetingOptions;
using internal::RankFacts;
using internal::Route;
using internal::TorchBackend;

constexpr char kInterfaceVariable[] = "GLOO_SOCKET_IFNAME";
constexpr char kMeetingKey[] = "meeting";
constexpr char kDevicesVariable[] = "CUDA_VISIBLE_DEVICES";

// The job's store, and how this process got to it.
struct StoreAccess {
  std::unique_ptr<JobStore> store;
  Route route;
};

absl::Status CheckOptions(const InitProcessGroupOptions& options) {
  ABSL_RETURN_IF_ERROR(internal::CheckBackendName(options.backend));
  for (absl::Duration timeout : {options.init_timeout, options.timeout}) {
    if (timeout <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrCat("a timeout of the process group is ", absl::FormatDuration(timeout),
                                                     ": it must be more than zero"));
    }
  }
  return absl::OkStatus();
}

// The addresses that the user wants gloo to listen on; empty for the one by which this machine reaches the store.
absl::StatusOr<std::vector<std::string>> GlooHostsByInterface() {
  const char* names = std::getenv(kInterfaceVariable);
  if (names == nullptr) return std::vector<std::string>();
  const absl::StatusOr<std::vector<internal::Endpoint>> endpoints = internal::InterfaceAddresses(names);
  if (!endpoints.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(kInterfaceVariable, "=", names, ": ", endpoints.status().message()));
  }
  std::vector<std::string> hosts;
  for (const internal::Endpoint& endpoint : *endpoints) hosts.push_back(endpoint.host());
  return hosts;
}

std::string DescribeVisibleDevices() {
  const char* value = std::getenv(kDevicesVariable);
  return value == nullptr ? absl::StrCat(kDevicesVariable, " is not set") : absl::StrCat(kDevicesVariable, "=\"", value, "\"");
}

RankFacts MyFacts(const RankInfo& info, std::string gloo_host) {
  return {.has_local_rank = info.has_local_rank,
          .local_rank = info.local_rank,
          .has_nccl = internal::HasNccl(),
          .devices = internal::VisibleCudaDevices(),
          .visible_devices = DescribeVisibleDevices(),
          .network_stack = internal::NetworkStackId(),
          .gloo_host = std::move(gloo_host)};
}

// A process may form one group after another; all its ranks must form as many. The number keeps their keys apart.
std::string NextStorePrefix(const RankInfo& info) {
  static std::atomic<int> num_groups = 0;
  return absl::StrCat("cohort/", info.run_id, "/", info.restart_count, "/", num_groups++);
}

absl::StatusOr<BackendChoice> Choose(std::string_view requested, const Meeting& meeting) {
  std::vector<RankFacts> ranks;
  for (const internal::Peer& peer : meeting.peers) {
    ABSL_ASSIGN_OR_RETURN(ranks.emplace_back(), internal::DecodeFacts(peer.facts));
  }
  return internal::ChooseBackend(requested, ranks);
}

absl::StatusOr<StoreAccess> OpenStore(const RankInfo& info, const std::string& prefix, absl::Time deadline) {
  if (info.rank == 0 && !info.use_agent_store) {
    ABSL_ASSIGN_OR_RETURN(const internal::MeetingPoint point, internal::OpenMeetingPoint(info));
    ABSL_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store, JobStore::Serve(point, prefix, deadline));
    return StoreAccess{.store = std::move(store), .route = point.route};
  }
  ABSL_ASSIGN_OR_RETURN(Route route, internal::FindMeetingPoint(info, deadline));
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store, JobStore::Connect(route, prefix, deadline));
  return StoreAccess{.store = std::move(store), .route = std::move(route)};
}

absl::StatusOr<Meeting> Meet(const RankInfo& info, const MeetingOptions& options, const StoreAccess& access) {
  if (info.rank != 0) {
    return internal::JoinMeeting(options, [&](absl::Duration timeout) {
      return access.store->Get(kMeetingKey, absl::Now() + timeout);
    });
  }
  return internal::HostMeeting(options, access.route.local_host, [&](std::string_view endpoint) {
    const absl::Status status = access.store->SetOnce(kMeetingKey, std::string(endpoint));
    return absl::IsAlreadyExists(status) ? absl::InvalidArgumentError("RANK=0 is used twice: there is a rank 0 already") : status;
  });
}

absl::StatusOr<std::unique_ptr<TorchBackend>> Connect(const RankInfo& info, const InitProcessGroupOptions& options,
                                                      std::vector<std::string> gloo_hosts) {
  const absl::Time deadline = absl::Now() + options.init_timeout;
  const std::string prefix = NextStorePrefix(info);
  ABSL_ASSIGN_OR_RETURN(StoreAccess access, OpenStore(info, prefix, deadline));
  if (gloo_hosts.empty()) gloo_hosts.push_back(access.route.local_host);
  const RankFacts mine = MyFacts(info, gloo_hosts.front());
  ABSL_ASSIGN_OR_RETURN(Meeting meeting, Meet(info,
                                              {.rank = info.rank,
                                               .world_size = info.world_size,
                                               .run_id = prefix,
                                               .timeout = deadline - absl::Now(),
                                               .facts = internal::EncodeFacts(mine),
                                               .meeting_point = internal::DescribeMeetingPoint(info)},
                                              access));
  ABSL_ASSIGN_OR_RETURN(const BackendChoice choice, Choose(options.backend, meeting));
  if (info.rank == 0 && !choice.note.empty()) {
    std::fprintf(stderr, "cohort: %s\n", choice.note.c_str());
  }
  if (choice.backend == "gloo") {
    return internal::ConnectGloo(info, {std::move(gloo_hosts), deadline - absl::Now(), options.timeout},
                                 std::move(meeting.control_plane), std::move(access.store));
  }
  ABSL_ASSIGN_OR_RETURN(const int device, internal::ChooseDevice(mine, info.world_size));
  return internal::ConnectNccl(info, {device, deadline - absl::Now(), options.timeout}, std::move(meeting.control_plane),
                               std::move(access.store));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(InitProcessGroupOptions options) {
  ABSL_RETURN_IF_ERROR(CheckOptions(options));
  if (!options.rank_info.has_value()) {
    ABSL_ASSIGN_OR_RETURN(options.rank_info, RankInfoFromEnvironment());
  }
  const RankInfo& info = *options.rank_info;
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> gloo_hosts, GlooHostsByInterface());
  if (info.world_size == 1) {
    if (options.backend == "nccl") {
      ABSL_RETURN_IF_ERROR(internal::ChooseBackend("nccl", {MyFacts(info, "")}).status());
    }
    return ProcessGroup::WorldOfOne();
  }
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<TorchBackend> backend, Connect(info, options, std::move(gloo_hosts)));
  return std::make_unique<ProcessGroup>(info, std::move(backend), ProcessGroup::Options{.timeout = options.timeout});
}

}  // namespace cohort
