// What the ranks are told, and why.
//
// 1. A rendezvous opens with the first rank that arrives and closes when all have: each rank gets one Outcome. With n
//    ranks that is 2n messages and one round trip; nothing is sent while nothing happens.
// 2. A rank that brings an error has arrived like any other. Everybody hears the error of the lowest such rank, so that
//    the answer does not depend on who was faster. The group goes on.
// 3. Everything else that goes wrong poisons the group: the first cause is sent to all ranks, at once, whether they are
//    in an operation or not, and it never changes. All ranks hear the same because one place decides.
// 4. A rank that disconnects without Goodbye is dead: its kernel closes the connection when the process ends, however
//    it ends. That is seen in milliseconds and needs no heartbeat.
// 5. A rank that is frozen keeps its connection: only a deadline tells. The deadline of a rendezvous is the earliest of
//    those that have arrived. Then, before anything is said, the others are asked where they are: who answers "nowhere"
//    or not at all is missing; who answers with another operation shows that the program took two ways, and no waiting
//    would have helped.
// 6. The data plane knows only that it failed, in words of its own, on the ranks that happened to notice. It reports
//    here, and if its time was up the same questions are asked. If it broke before, the news of a death may still be on
//    the way, so the verdict waits a moment for it; if none comes, the rank that reported first is quoted to all.
// 7. Goodbye is a promise to start nothing more. Whoever still needs the rank hears that it has left. Rank 0 carries
//    the coordinator and is told Farewell only when nobody needs it any more: all others have left or died. In a
//    poisoned group nobody waits for anybody.

#include "cohort/runtime/internal/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/functional/overload.h"
#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cohort/runtime/internal/rank_names.h"

namespace cohort::internal {
namespace {

// Ranks by what they are doing, in the order of their first member.
class Places {
 public:
  void Add(int rank, std::string_view place) {
    auto found = std::ranges::find(places_, place, &Place::name);
    if (found == places_.end()) found = places_.insert(places_.end(), Place{.name = std::string(place)});
    found->ranks.push_back(rank);
  }
  bool empty() const { return places_.empty(); }
  std::string ToString() const {
    return absl::StrJoin(places_, ", ", [](std::string* out, const Place& place) {
      absl::StrAppend(out, RankNames(place.ranks), " ", place.name);
    });
  }

 private:
  struct Place {
    std::string name;
    std::vector<int> ranks;
  };
  std::vector<Place> places_;
};

std::string Rounded(absl::Duration duration) {
  absl::Duration unit = duration < absl::Seconds(1) ? absl::Milliseconds(1) : absl::Milliseconds(100);
  return absl::FormatDuration(absl::Trunc(duration + unit / 2, unit));
}

int64_t TotalBytes(const std::vector<std::string>& payloads) {
  int64_t total = 0;
  for (const std::string& payload : payloads) total += static_cast<int64_t>(payload.size());
  return total;
}

}  // namespace

Coordinator::Coordinator(int world_size) : ranks_(world_size) { ABSL_CHECK_GT(world_size, 0); }

void Coordinator::Join(int rank, int64_t pid) {
  ABSL_CHECK(ranks_[rank].presence == Presence::kAbsent) << "rank " << rank << " joins twice";
  ranks_[rank].presence = Presence::kPresent;
  ranks_[rank].pid = pid;
  ++num_joined_;
  if (!poison_.ok()) Send({rank}, Poison{poison_});
}

absl::Status Coordinator::Handle(int rank, ControlMessage message, SteadyTime now) {
  // An answer may cross the rank's own Goodbye.
  if (ranks_[rank].presence != Presence::kPresent) return absl::OkStatus();
  return std::visit(absl::Overload([&](Arrive& m) { return HandleArrive(rank, std::move(m), now); },
                                   [&](Report& m) { return HandleReport(rank, std::move(m), now), absl::OkStatus(); },
                                   [&](Abort& m) { return HandleAbort(rank, m); },
                                   [&](Here& m) { return HandleHere(rank, m), absl::OkStatus(); },
                                   [&](Goodbye& m) { return HandleGoodbye(rank, m, now), absl::OkStatus(); },
                                   [&](auto&) {
                                     return absl::InvalidArgumentError(
                                         absl::StrCat("rank ", rank, " speaks as if it were the coordinator"));
                                   }),
                    message);
}

void Coordinator::Disconnect(int rank) {
  if (ranks_[rank].presence != Presence::kPresent) return;
  ranks_[rank].presence = Presence::kDead;
  Fail(absl::UnavailableError(
      absl::StrCat("rank ", rank, " (pid ", ranks_[rank].pid, ") is gone: its connection closed without a goodbye")));
  CheckFarewell(SteadyTime::min());
}

void Coordinator::Fail(absl::Status cause) {
  if (!poison_.ok()) return;
  poison_ = std::move(cause);
  rendezvous_.reset();
  inquiry_.reset();
  for (Rank& rank : ranks_) rank.arrival.reset();
  Send(RanksThatAre(Presence::kPresent), Poison{poison_});
}

void Coordinator::Tick(SteadyTime now) {
  CheckFarewell(now);
  if (inquiry_.has_value()) {
    if (now >= inquiry_->deadline) Fail(Verdict());
  } else if (rendezvous_.has_value() && now >= rendezvous_->deadline) {
    StartInquiry(ranks_[rendezvous_->opener].arrival->operation, Between(rendezvous_->opened, now), absl::OkStatus(),
                 now);
  }
}

SteadyTime Coordinator::next_deadline() const {
  SteadyTime next = farewell_deadline_.value_or(SteadyTime::max());
  if (inquiry_.has_value()) return std::min(next, inquiry_->deadline);
  if (rendezvous_.has_value()) return std::min(next, rendezvous_->deadline);
  return next;
}

std::optional<int64_t> Coordinator::pid(int rank) const {
  if (ranks_[rank].presence == Presence::kAbsent) return std::nullopt;
  return ranks_[rank].pid;
}

std::vector<Coordinator::Outgoing> Coordinator::TakeOutbox() { return std::exchange(outbox_, {}); }

absl::Status Coordinator::HandleArrive(int rank, Arrive message, SteadyTime now) {
  Rank& self = ranks_[rank];
  if (message.generation != self.generation + 1 || self.arrival.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " arrives at rendezvous ", message.generation,
                                                   " after rendezvous ", self.generation));
  }
  if (!poison_.ok()) return absl::OkStatus();  // the news is on its way to the rank
  self.generation = message.generation;
  self.arrival = std::move(message.arrival);
  if (absl::Status left = SomebodyHasLeft(self.arrival->operation); !left.ok()) {
    Fail(std::move(left));
    return absl::OkStatus();
  }

  SteadyTime deadline = After(now, self.arrival->timeout);
  if (!rendezvous_.has_value()) rendezvous_ = Rendezvous{.opener = rank, .opened = now, .deadline = deadline};
  rendezvous_->num_arrived += 1;
  rendezvous_->deadline = std::min(rendezvous_->deadline, deadline);

  const Arrival& opener = *ranks_[rendezvous_->opener].arrival;
  if (self.arrival->operation != opener.operation || self.arrival->delivery != opener.delivery) {
    std::vector<std::optional<std::string>> positions(ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i) {
      if (ranks_[i].arrival.has_value()) positions[i] = ranks_[i].arrival->operation;
    }
    Fail(DifferentOperations(positions));
  } else if (inquiry_.has_value()) {
    SetPosition(rank, self.arrival->operation);  // too late, but good to know
  } else if (rendezvous_->num_arrived == static_cast<int>(ranks_.size())) {
    CloseRendezvous();
  }
  return absl::OkStatus();
}

void Coordinator::HandleReport(int rank, Report message, SteadyTime now) {
  if (!poison_.ok()) return;
  if (inquiry_.has_value()) {
    SetPosition(rank, std::move(message.operation));
    return;
  }
  if (absl::Status left = SomebodyHasLeft(message.operation); !left.ok()) {
    Fail(std::move(left));
    return;
  }
  absl::Status broken;
  if (!absl::IsDeadlineExceeded(message.error)) {
    broken = absl::Status(message.error.code(),
                          absl::StrCat("rank ", rank, ": ", message.operation, ": ", message.error.message()));
  }
  StartInquiry(message.operation, message.waited, std::move(broken), now);
  SetPosition(rank, std::move(message.operation));
}

absl::Status Coordinator::HandleAbort(int rank, const Abort& message) {
  if (message.why.ok()) return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " aborts without an error"));
  Fail(absl::Status(message.why.code(), absl::StrCat("rank ", rank, ": ", message.why.message())));
  return absl::OkStatus();
}

void Coordinator::HandleHere(int rank, const Here& message) {
  if (message.inquiry == num_inquiries_) SetPosition(rank, message.operation);
}

void Coordinator::HandleGoodbye(int rank, const Goodbye& message, SteadyTime now) {
  ranks_[rank].presence = Presence::kLeft;
  ++num_left_;
  if (rendezvous_.has_value()) Fail(SomebodyHasLeft(ranks_[rendezvous_->opener].arrival->operation));
  if (inquiry_.has_value()) Fail(SomebodyHasLeft(inquiry_->operation));
  if (rank != 0 || !poison_.ok()) {
    Send({rank}, Farewell{});
    CheckFarewell(SteadyTime::min());
  } else {
    farewell_deadline_ = After(now, message.timeout);
    CheckFarewell(now);
  }
}

void Coordinator::CloseRendezvous() {
  const Rank* failed = nullptr;
  int others = -1;
  for (const Rank& rank : ranks_) {
    if (rank.arrival->status.ok()) continue;
    if (failed == nullptr) failed = &rank;
    ++others;
  }
  if (failed != nullptr) {
    const absl::Status& status = failed->arrival->status;
    std::string text = absl::StrCat("rank ", failed - ranks_.data(), ": ", status.message());
    if (others > 0) absl::StrAppend(&text, " (and ", others, others == 1 ? " other rank)" : " other ranks)");
    Send(RanksThatAre(Presence::kPresent),
         Outcome{.generation = failed->generation, .status = absl::Status(status.code(), text)});
  } else {
    DeliverPayloads(ranks_[0].arrival->delivery);
  }
  rendezvous_.reset();
  for (Rank& rank : ranks_) rank.arrival.reset();
}

void Coordinator::DeliverPayloads(Delivery delivery) {
  std::vector<int> all = RanksThatAre(Presence::kPresent);
  Outcome outcome{.generation = ranks_[0].generation};
  switch (delivery) {
    case Delivery::kNothing:
      break;
    case Delivery::kMainToAll:
      outcome.payloads.push_back(std::move(ranks_[0].arrival->payload));
      break;
    case Delivery::kAllToMain:
      if (all.size() > 1) Send({all.begin() + 1, all.end()}, outcome);
      all.resize(1);
      [[fallthrough]];
    case Delivery::kAllToAll:
      for (Rank& rank : ranks_) outcome.payloads.push_back(std::move(rank.arrival->payload));
  }
  if (delivery == Delivery::kAllToAll && TotalBytes(outcome.payloads) > kMaxPayloadBytes) {
    outcome.status =
        absl::InvalidArgumentError(absl::StrCat("the ranks bring ", TotalBytes(outcome.payloads),
                                                " bytes together; at most ", kMaxPayloadBytes, " are allowed"));
    outcome.payloads.clear();
  }
  Send(std::move(all), std::move(outcome));
}

void Coordinator::CheckFarewell(SteadyTime now) {
  if (!farewell_deadline_.has_value()) return;
  std::vector<int> remaining = RanksThatAre(Presence::kPresent);
  if (!remaining.empty() && now < *farewell_deadline_) return;
  Farewell farewell;
  if (!remaining.empty()) {
    farewell.status = absl::DeadlineExceededError(
        absl::StrCat("Shutdown waited as long as it may; not yet there: ", RankNames(remaining)));
  }
  farewell_deadline_.reset();
  Send({0}, std::move(farewell));
}

void Coordinator::StartInquiry(std::string operation, absl::Duration waited, absl::Status broken, SteadyTime now) {
  inquiry_ = Inquiry{.operation = std::move(operation), .waited = waited, .broken = std::move(broken)};
  inquiry_->deadline = After(now, inquiry_->broken.ok() ? kInquiryGrace : kDeathGrace);
  inquiry_->positions.resize(ranks_.size());
  std::vector<int> unknown;
  for (int rank : RanksThatAre(Presence::kPresent)) {
    if (ranks_[rank].arrival.has_value()) {
      inquiry_->positions[rank] = ranks_[rank].arrival->operation;
    } else {
      unknown.push_back(rank);
    }
  }
  Send(std::move(unknown), WhereAreYou{.inquiry = ++num_inquiries_});
  EndInquiryIfAnswered();
}

void Coordinator::SetPosition(int rank, std::string operation) {
  if (!inquiry_.has_value()) return;
  inquiry_->positions[rank] = std::move(operation);
  EndInquiryIfAnswered();
}

void Coordinator::EndInquiryIfAnswered() {
  if (!inquiry_->broken.ok()) return;  // it is a death that this one waits for
  for (int rank : RanksThatAre(Presence::kPresent)) {
    if (!inquiry_->positions[rank].has_value()) return;
  }
  Fail(Verdict());
}

absl::Status Coordinator::Verdict() const {
  if (!inquiry_->broken.ok()) return inquiry_->broken;
  Places missing;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const std::optional<std::string>& position = inquiry_->positions[i];
    if (ranks_[i].presence == Presence::kAbsent) {
      missing.Add(i, "(has not come)");
    } else if (!position.has_value()) {
      missing.Add(i, "(does not answer)");
    } else if (position->empty()) {
      missing.Add(i, "(in no operation)");
    } else if (*position != inquiry_->operation) {
      return DifferentOperations(inquiry_->positions);
    }
  }
  return absl::DeadlineExceededError(
      absl::StrCat(inquiry_->operation, " waited ", Rounded(inquiry_->waited),
                   missing.empty() ? "; every rank is in it by now: one came too late, or the network is too slow"
                                   : absl::StrCat("; missing: ", missing.ToString())));
}

absl::Status Coordinator::DifferentOperations(const std::vector<std::optional<std::string>>& positions) const {
  Places places;
  for (size_t i = 0; i < positions.size(); ++i) {
    if (!positions[i].has_value()) continue;
    places.Add(i, positions[i]->empty() ? "in no operation" : absl::StrCat("in ", *positions[i]));
  }
  return absl::FailedPreconditionError(absl::StrCat("the ranks are in different operations: ", places.ToString()));
}

absl::Status Coordinator::SomebodyHasLeft(std::string_view operation) const {
  if (num_left_ == 0) return absl::OkStatus();
  std::vector<int> left = RanksThatAre(Presence::kLeft);
  return absl::FailedPreconditionError(absl::StrCat(RankNames(left), left.size() == 1 ? " has" : " have",
                                                    " left the group, and ", operation, " needs every rank"));
}

std::vector<int> Coordinator::RanksThatAre(Presence presence) const {
  std::vector<int> ranks;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i].presence == presence) ranks.push_back(static_cast<int>(i));
  }
  return ranks;
}

void Coordinator::Send(std::vector<int> to, ControlMessage message) {
  if (!to.empty()) outbox_.push_back({std::move(to), std::move(message)});
}

}  // namespace cohort::internal
