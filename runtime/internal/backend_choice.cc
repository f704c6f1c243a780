#include "cohort/runtime/internal/backend_choice.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cohort/runtime/internal/endpoint.h"

namespace cohort::internal {
namespace {

constexpr int kNumFields = 7;

// What a rank's device was chosen by.
std::string DescribeChoice(const RankFacts& facts) {
  return absl::StrCat(facts.has_local_rank ? absl::StrCat("LOCAL_RANK=", facts.local_rank) : "LOCAL_RANK is not set",
                      ", ", facts.visible_devices);
}

// OK if every rank can use NCCL on a device of its own.
absl::Status CheckNccl(const std::vector<RankFacts>& ranks) {
  std::map<std::string, int> rank_on_device;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    const RankFacts& facts = ranks[rank];
    const absl::StatusOr<int> device = ChooseDevice(facts, static_cast<int>(ranks.size()));
    if (!device.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", rank, " cannot use nccl: ", device.status().message()));
    }
    const auto [other, is_new] = rank_on_device.emplace(facts.devices[*device], rank);
    if (!is_new) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", other->second, " and rank ", rank, " cannot both use nccl on one device, ",
                       other->first, " (rank ", other->second, ": ", DescribeChoice(ranks[other->second]), "; rank ",
                       rank, ": ", DescribeChoice(facts), "): each rank needs a GPU of its own, gloo needs none"));
    }
  }
  return absl::OkStatus();
}

// True also of what is no address.
bool IsLoopback(const std::string& host) {
  const absl::StatusOr<std::vector<Endpoint>> endpoints = Resolve(host, 0);
  return !endpoints.ok() || endpoints->front().is_loopback();
}

// OK unless gloo would have to connect two machines through an address that leads nowhere from the other one.
absl::Status CheckGloo(const std::vector<RankFacts>& ranks) {
  std::map<std::string, int> rank_at_host;
  for (int rank = 0; rank < static_cast<int>(ranks.size()); ++rank) {
    // Of machines behind one host, such as a container's bridge, each has the same address for its own.
    const int other = rank_at_host.emplace(ranks[rank].gloo_host, rank).first->second;
    if (ranks[other].network_stack != ranks[rank].network_stack && !IsLoopback(ranks[rank].gloo_host)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "rank ", other, " and rank ", rank, " are on different machines, and both have the address ",
          ranks[rank].gloo_host, " for gloo: set GLOO_SOCKET_IFNAME to the network interface that connects them"));
    }
    if (ranks[rank].network_stack == ranks[0].network_stack) continue;
    for (int on_loopback : {0, rank}) {
      if (!IsLoopback(ranks[on_loopback].gloo_host)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("rank 0 and rank ", rank, " are on different machines, but rank ", on_loopback,
                       "'s address for gloo is loopback (", ranks[on_loopback].gloo_host,
                       "): set MASTER_ADDR to an address that all machines reach, or GLOO_SOCKET_IFNAME to the "
                       "network interface that connects them"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeFacts(const RankFacts& facts) {
  const std::vector<std::string> fields = {absl::StrCat(facts.has_local_rank),
                                           absl::StrCat(facts.local_rank),
                                           absl::StrCat(facts.has_nccl),
                                           absl::StrJoin(facts.devices, " "),
                                           absl::CEscape(facts.visible_devices),
                                           facts.network_stack,
                                           facts.gloo_host};
  return absl::StrJoin(fields, "\n");
}

absl::StatusOr<RankFacts> DecodeFacts(std::string_view bytes) {
  const std::vector<std::string> fields = absl::StrSplit(bytes, '\n');
  RankFacts facts;
  if (fields.size() != kNumFields || !absl::SimpleAtob(fields[0], &facts.has_local_rank) ||
      !absl::SimpleAtoi(fields[1], &facts.local_rank) || !absl::SimpleAtob(fields[2], &facts.has_nccl) ||
      !absl::CUnescape(fields[4], &facts.visible_devices)) {
    return absl::InternalError(absl::StrCat("a rank describes itself unintelligibly: \"", absl::CEscape(bytes), "\""));
  }
  facts.devices = absl::StrSplit(fields[3], ' ', absl::SkipEmpty());
  facts.network_stack = fields[5];
  facts.gloo_host = fields[6];
  return facts;
}

absl::StatusOr<int> ChooseDevice(const RankFacts& facts, int world_size) {
  const int num_devices = static_cast<int>(facts.devices.size());
  if (!facts.has_nccl) {
    return absl::FailedPreconditionError(absl::StrCat(
        "no visible GPU (", facts.visible_devices,
        "): this build has no NCCL, build with --@cohort//third_party/libtorch:cuda (cohort's own: --config=cuda)"));
  }
  if (num_devices == 0) {
    return absl::FailedPreconditionError(absl::StrCat("no visible GPU (", facts.visible_devices, ")"));
  }
  if (world_size > 1 && !facts.has_local_rank) {
    return absl::FailedPreconditionError(absl::StrCat("LOCAL_RANK is not set, so which of the ", num_devices,
                                                      " visible GPUs is its own cannot be told"));
  }
  if (facts.local_rank < num_devices) return facts.local_rank;
  if (num_devices == 1) return 0;
  return absl::FailedPreconditionError(absl::StrCat("LOCAL_RANK=", facts.local_rank, ", but only ", num_devices,
                                                    " GPUs are visible (", facts.visible_devices, ")"));
}

absl::Status CheckBackendName(std::string_view requested) {
  if (requested == "auto" || requested == "gloo" || requested == "nccl") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unknown backend \"", requested, "\": it must be \"auto\", \"gloo\" or \"nccl\""));
}

absl::StatusOr<BackendChoice> ChooseBackend(std::string_view requested, const std::vector<RankFacts>& ranks) {
  ABSL_RETURN_IF_ERROR(CheckBackendName(requested));
  BackendChoice choice = {.backend = "gloo", .note = ""};
  if (requested != "gloo") {
    const absl::Status nccl = CheckNccl(ranks);
    if (nccl.ok()) return BackendChoice{.backend = "nccl", .note = ""};
    if (requested == "nccl") return nccl;
    choice.note = absl::StrCat("backend auto: gloo on all ranks, because ", nccl.message());
  }
  ABSL_RETURN_IF_ERROR(CheckGloo(ranks));
  return choice;
}

}  // namespace cohort::internal
