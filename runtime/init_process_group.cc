// How the ranks meet.
//
// 1. Options and environment are checked, before any socket is opened. A world of one is ready then.
// 2. Rank 0 listens at MASTER_ADDR:MASTER_PORT and the others connect to it as soon as it does; nothing else looks up a
//    name. From here on, the control plane says who has not come and who has died, to all that are there
//    (tcp_control_plane.cc). Under torchrun's agent that port is taken: by the agent's store. Then rank 0 listens
//    elsewhere, and says where in the store.
// 3. At the meeting each rank tells all others what it is and has. All draw the same conclusion from it, which backend
//    on which devices, so an error is the same on all ranks and comes at once.
// 4. The backend connects its own way. Nobody goes on before all have done so: what a rank does next, and does wrong,
//    must not fail the InitProcessGroup of another.

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
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/error_file.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/backend_choice.h"
#include "cohort/runtime/internal/control_plane.h"
#include "cohort/runtime/internal/endpoint.h"
#include "cohort/runtime/internal/gloo_backend.h"
#include "cohort/runtime/internal/job_store.h"
#include "cohort/runtime/internal/meeting_point.h"
#include "cohort/runtime/internal/nccl_backend.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/internal/tcp_control_plane.h"
#include "cohort/runtime/internal/torch_backend.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"

namespace cohort {
namespace {

using internal::BackendChoice;
using internal::ControlPlane;
using internal::JobStore;
using internal::Meeting;
using internal::MeetingOptions;
using internal::MeetingPoint;
using internal::RankFacts;
using internal::SteadyTime;
using internal::TorchBackend;
using internal::Visit;

constexpr char kInterfaceVariable[] = "GLOO_SOCKET_IFNAME";
constexpr char kDevicesVariable[] = "CUDA_VISIBLE_DEVICES";
// In an agent's store.
constexpr char kMeetingKey[] = "meeting";
constexpr absl::Duration kPauseBeforeNextVisit = absl::Milliseconds(20);

absl::Status CheckOptions(const InitProcessGroupOptions& options) {
  ABSL_RETURN_IF_ERROR(internal::CheckBackendName(options.backend));
  for (absl::Duration timeout : {options.init_timeout, options.timeout}) {
    if (timeout <= absl::ZeroDuration()) {
      return absl::InvalidArgumentError(absl::StrCat("a timeout of the process group is ",
                                                     absl::FormatDuration(timeout), ": it must be more than zero"));
    }
  }
  return absl::OkStatus();
}

// The addresses that the user wants gloo to listen on. Empty: the one by which this machine reaches the meeting point.
absl::StatusOr<std::vector<std::string>> GlooHostsByInterface() {
  const char* names = std::getenv(kInterfaceVariable);
  if (names == nullptr) return std::vector<std::string>();
  const absl::StatusOr<std::vector<internal::Endpoint>> endpoints = internal::InterfaceAddresses(names);
  if (!endpoints.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(kInterfaceVariable, "=", absl::Utf8SafeCHexEscape(names), ": ",
                                                   endpoints.status().message()));
  }
  std::vector<std::string> hosts;
  for (const internal::Endpoint& endpoint : *endpoints) hosts.push_back(endpoint.host());
  return hosts;
}

std::string DescribeVisibleDevices() {
  const char* value = std::getenv(kDevicesVariable);
  return value == nullptr ? absl::StrCat(kDevicesVariable, " is not set")
                          : absl::StrCat(kDevicesVariable, "=\"", value, "\"");
}

RankFacts FactsOf(const RankInfo& info, std::string gloo_host) {
  return {.has_local_rank = info.has_local_rank,
          .local_rank = info.local_rank,
          .has_nccl = internal::HasNccl(),
          .devices = internal::VisibleCudaDevices(),
          .visible_devices = DescribeVisibleDevices(),
          .network_stack = internal::NetworkStackId(),
          .gloo_host = std::move(gloo_host)};
}

absl::StatusOr<BackendChoice> Choose(std::string_view requested, const Meeting& meeting) {
  std::vector<RankFacts> ranks;
  for (const internal::Peer& peer : meeting.peers) {
    ABSL_ASSIGN_OR_RETURN(ranks.emplace_back(), internal::DecodeFacts(peer.facts));
  }
  return internal::ChooseBackend(requested, ranks);
}

absl::StatusOr<Meeting> WithHint(absl::StatusOr<Meeting> meeting, const std::string& hint) {
  if (!absl::IsDeadlineExceeded(meeting.status())) return meeting;
  return absl::DeadlineExceededError(absl::StrCat(meeting.status().message(), hint));
}

// One rank on its way into a group of several.
class Newcomer {
 public:
  Newcomer(const RankInfo& info, const InitProcessGroupOptions& options, std::vector<std::string> gloo_hosts)
      : info_(info),
        options_(options),
        deadline_(internal::After(internal::SteadyNow(), options.init_timeout)),
        num_predecessors_(num_groups++),
        group_name_(absl::StrCat("cohort/", info.run_id, "/", info.restart_count, "/", num_predecessors_)),
        gloo_hosts_(std::move(gloo_hosts)) {}

  absl::StatusOr<std::unique_ptr<TorchBackend>> Connect() {
    ABSL_ASSIGN_OR_RETURN(Meeting meeting, Meet());
    ABSL_ASSIGN_OR_RETURN(const BackendChoice choice, Choose(options_.backend, meeting));
    if (info_.rank == 0 && !choice.note.empty()) std::fprintf(stderr, "cohort: %s\n", choice.note.c_str());
    ABSL_ASSIGN_OR_RETURN(std::unique_ptr<TorchBackend> backend, choice.backend == "gloo"
                                                                     ? ConnectByGloo(std::move(meeting.control_plane))
                                                                     : ConnectByNccl(std::move(meeting.control_plane)));
    ABSL_RETURN_IF_ERROR(backend->Meet({.operation = "InitProcessGroup", .timeout = TimeLeft()}).status());
    return backend;
  }

 private:
  absl::Duration TimeLeft() const { return internal::Between(internal::SteadyNow(), deadline_); }

  absl::StatusOr<Meeting> Meet() {
    if (info_.use_agent_store) return MeetThroughAgent();
    return info_.rank == 0 ? Host() : Join();
  }

  absl::StatusOr<Meeting> Host() {
    ABSL_ASSIGN_OR_RETURN(MeetingPoint point, internal::OpenMeetingPoint(info_, deadline_));
    return WithHint(internal::HostMeeting(Introduce(point.local_host), std::move(point.listener)), point.hint);
  }

  absl::StatusOr<Meeting> Join() {
    while (true) {
      ABSL_ASSIGN_OR_RETURN(Visit visit, internal::VisitMeetingPoint(info_, deadline_));
      absl::StatusOr<Meeting> meeting = internal::JoinMeeting(Introduce(visit.local_host), std::move(visit.connection));
      // Rank 0 may not have left the process's group before this one yet, which then refuses, or ends.
      const bool may_be_predecessor =
          num_predecessors_ > 0 && (absl::IsInvalidArgument(meeting.status()) || absl::IsUnavailable(meeting.status()));
      if (!may_be_predecessor || TimeLeft() <= kPauseBeforeNextVisit) return WithHint(std::move(meeting), visit.hint);
      absl::SleepFor(kPauseBeforeNextVisit);
    }
  }

  absl::StatusOr<Meeting> MeetThroughAgent() {
    ABSL_ASSIGN_OR_RETURN(const Visit visit, internal::VisitMeetingPoint(info_, deadline_));
    ABSL_ASSIGN_OR_RETURN(agent_store_,
                          JobStore::Connect(visit.remote.host(), visit.remote.port(), group_name_, TimeLeft()));
    const MeetingOptions introduction = Introduce(visit.local_host);
    if (info_.rank != 0) {
      return internal::JoinMeeting(introduction,
                                   [this](absl::Duration timeout) { return agent_store_->Get(kMeetingKey, timeout); });
    }
    return internal::HostMeeting(introduction, visit.local_host, [this](std::string_view endpoint) {
      const absl::Status status = agent_store_->SetOnce(kMeetingKey, std::string(endpoint));
      return absl::IsAlreadyExists(status)
                 ? absl::InvalidArgumentError("RANK=0 is used twice: there is a rank 0 already")
                 : status;
    });
  }

  absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectByGloo(std::unique_ptr<ControlPlane> control) {
    return internal::ConnectGloo(
        info_, {.hosts = gloo_hosts_, .connect_timeout = TimeLeft(), .timeout = options_.timeout}, std::move(control));
  }

  absl::StatusOr<std::unique_ptr<TorchBackend>> ConnectByNccl(std::unique_ptr<ControlPlane> control) {
    ABSL_ASSIGN_OR_RETURN(const int device, internal::ChooseDevice(facts_, info_.world_size));
    return internal::ConnectNccl(info_,
                                 {.device = device,
                                  .prefix = group_name_,
                                  .local_host = local_host_,
                                  .connect_timeout = TimeLeft(),
                                  .timeout = options_.timeout},
                                 std::move(control), std::move(agent_store_));
  }

  // Notes the address by which this machine reaches the others, and returns what this rank says about itself.
  MeetingOptions Introduce(const std::string& local_host) {
    local_host_ = local_host;
    if (gloo_hosts_.empty()) gloo_hosts_.push_back(local_host);
    facts_ = FactsOf(info_, gloo_hosts_.front());
    return {.rank = info_.rank,
            .world_size = info_.world_size,
            .run_id = group_name_,
            .timeout = TimeLeft(),
            .facts = internal::EncodeFacts(facts_),
            .meeting_point = internal::MeetingPointName(info_)};
  }

  // A process may form one group after another, and all its ranks must form as many.
  static inline std::atomic<int> num_groups = 0;

  const RankInfo& info_;
  const InitProcessGroupOptions& options_;
  const SteadyTime deadline_;
  const int num_predecessors_;
  // What only the ranks of this group have in common: no other job, no earlier start of this one, no earlier group.
  const std::string group_name_;
  std::vector<std::string> gloo_hosts_;
  std::string local_host_;
  RankFacts facts_;
  std::unique_ptr<JobStore> agent_store_;  // null unless there is one
};

absl::StatusOr<std::unique_ptr<ProcessGroup>> FormGroup(InitProcessGroupOptions options) {
  ABSL_RETURN_IF_ERROR(CheckOptions(options));
  if (!options.rank_info.has_value()) {
    ABSL_ASSIGN_OR_RETURN(options.rank_info, RankInfoFromEnvironment());
  }
  const RankInfo& info = *options.rank_info;
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> gloo_hosts, GlooHostsByInterface());
  if (info.world_size == 1) {
    if (options.backend == "nccl") {
      ABSL_RETURN_IF_ERROR(internal::ChooseBackend("nccl", {FactsOf(info, "")}).status());
    }
    return ProcessGroup::WorldOfOne();
  }
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<TorchBackend> backend,
                        Newcomer(info, options, std::move(gloo_hosts)).Connect());
  return std::make_unique<ProcessGroup>(info, std::move(backend), ProcessGroup::Options{.timeout = options.timeout});
}

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessGroup>> InitProcessGroup(InitProcessGroupOptions options) {
  LocateErrorFile();
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group = FormGroup(std::move(options));
  if (!group.ok()) WriteErrorFile(group.status());
  return group;
}

}  // namespace cohort
