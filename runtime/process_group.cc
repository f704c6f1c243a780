#include "cohort/runtime/process_group.h"

#include <utility>

#include "absl/log/absl_check.h"
#include "absl/status/status_macros.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cohort/runtime/internal/backend.h"

namespace cohort {
namespace {

using internal::Arrival;
using internal::Delivery;

static_assert(ProcessGroup::kMaxMessageBytes == internal::kMaxPayloadBytes);

// Most bytes of a name, as errors show it, on all ranks.
constexpr size_t kMaxNameBytes = 8 << 10;

// What a world of one answers, in the same words as any other.
absl::StatusOr<std::vector<std::string>> MeetAlone(Arrival arrival) {
  if (!arrival.status.ok()) {
    return absl::Status(arrival.status.code(), absl::StrCat("rank 0: ", arrival.status.message()));
  }
  std::vector<std::string> payloads;
  if (arrival.delivery != Delivery::kNothing) payloads.push_back(std::move(arrival.payload));
  return payloads;
}

absl::Status HasLeft() { return absl::FailedPreconditionError("this rank has left the group by Shutdown"); }

// Puts what the caller brings into `arrival`.
void Bring(absl::StatusOr<std::string> mine, int64_t max_bytes, Arrival& arrival) {
  if (!mine.ok()) {
    arrival.status = mine.status();
  } else if (static_cast<int64_t>(mine->size()) > max_bytes) {
    arrival.status = absl::InvalidArgumentError(
        absl::StrCat("brings ", mine->size(), " bytes; at most ", max_bytes, " are allowed"));
  } else {
    arrival.payload = *std::move(mine);
  }
}

}  // namespace

std::unique_ptr<ProcessGroup> ProcessGroup::WorldOfOne() {
  return std::unique_ptr<ProcessGroup>(new ProcessGroup(RankInfo()));
}

absl::StatusOr<std::unique_ptr<ProcessGroup>> ProcessGroup::WorldOfOneFromEnvironment() {
  ABSL_ASSIGN_OR_RETURN(const RankInfo info, RankInfoFromEnvironment());
  if (info.world_size == 1) return WorldOfOne();
  return absl::UnimplementedError(absl::StrCat(
      "this program was started as one of WORLD_SIZE=", info.world_size, " ranks and links no backend to meet the "
      "others: add @cohort//runtime:init_process_group to its deps and call InitProcessGroup(), or start it alone"));
}

ProcessGroup::ProcessGroup(RankInfo info) : info_(std::move(info)) {}

ProcessGroup::ProcessGroup(RankInfo info, absl_nonnull std::unique_ptr<internal::Backend> backend, Options options)
    : info_(std::move(info)), options_(options), backend_(std::move(backend)) {}

ProcessGroup::~ProcessGroup() = default;

std::string_view ProcessGroup::backend_name() const { return backend_ == nullptr ? "none" : backend_->name(); }

absl::Status ProcessGroup::Abort(const absl::Status& why) {
  ABSL_CHECK(!why.ok()) << "Abort needs an error";
  if (backend_ != nullptr) return backend_->Abort(why);
  return absl::Status(why.code(), absl::StrCat("rank 0: ", why.message()));
}

absl::Status ProcessGroup::Barrier() {
  if (has_left_) return HasLeft();
  return backend_ == nullptr ? absl::OkStatus() : backend_->Barrier(options_.timeout);
}

absl::Status ProcessGroup::Agree(std::string_view name, const absl::Status& mine) {
  return Agree(name, mine, options_.timeout);
}

absl::Status ProcessGroup::Agree(std::string_view name, const absl::Status& mine, absl::Duration timeout) {
  return Meet("Agree", name, {.status = mine, .timeout = timeout}).status();
}

absl::StatusOr<std::string> ProcessGroup::BroadcastBytes(std::string_view name, absl::StatusOr<std::string> mine) {
  return BroadcastBytes(name, std::move(mine), options_.timeout);
}

absl::StatusOr<std::string> ProcessGroup::BroadcastBytes(std::string_view name, absl::StatusOr<std::string> mine,
                                                         absl::Duration timeout) {
  Arrival arrival{.delivery = Delivery::kMainToAll, .timeout = timeout};
  if (is_main()) {
    Bring(std::move(mine), kMaxMessageBytes, arrival);
  } else {
    arrival.status = mine.status();
  }
  ABSL_ASSIGN_OR_RETURN(std::vector<std::string> payloads, Meet("BroadcastBytes", name, std::move(arrival)));
  ABSL_CHECK_EQ(payloads.size(), size_t{1});
  return std::move(payloads[0]);
}

absl::StatusOr<std::vector<std::string>> ProcessGroup::GatherBytes(std::string_view name,
                                                                   absl::StatusOr<std::string> mine,
                                                                   int64_t max_bytes_per_rank) {
  Arrival arrival{.delivery = Delivery::kAllToMain, .timeout = options_.timeout};
  if (max_bytes_per_rank < 0 || max_bytes_per_rank > kMaxMessageBytes) {
    arrival.status = absl::InvalidArgumentError(
        absl::StrCat("max_bytes_per_rank is ", max_bytes_per_rank, "; allowed are 0 to ", kMaxMessageBytes));
  } else {
    Bring(std::move(mine), max_bytes_per_rank, arrival);
  }
  // The limit belongs to the operation: ranks with different ones must not pair.
  return Meet(absl::StrCat("GatherBytes (at most ", max_bytes_per_rank, " bytes each)"), name, std::move(arrival));
}

absl::Status ProcessGroup::Shutdown() {
  if (std::exchange(has_left_, true)) return absl::OkStatus();
  return backend_ == nullptr ? absl::OkStatus() : backend_->Leave(options_.timeout);
}

absl::StatusOr<std::vector<std::string>> ProcessGroup::Meet(std::string_view kind, std::string_view name,
                                                            Arrival arrival) {
  if (has_left_) return HasLeft();
  std::string shown = absl::Utf8SafeCHexEscape(name);
  if (shown.size() > kMaxNameBytes) {
    arrival.status = absl::InvalidArgumentError(
        absl::StrCat("the name of an operation has ", shown.size(), " bytes; at most ", kMaxNameBytes, " are allowed"));
    shown.resize(kMaxNameBytes);
  }
  if (!arrival.status.ok()) arrival.payload.clear();
  arrival.operation = absl::StrCat(kind, " \"", shown, "\"");
  return backend_ == nullptr ? MeetAlone(std::move(arrival)) : backend_->Meet(std::move(arrival));
}

}  // namespace cohort
