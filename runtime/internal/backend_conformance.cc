// Each check is a rule of ProcessGroup's contract. Two timeouts:
//
//   kLong   where the answer must come early: whoever waits for it gets an error that no check expects
//   kShort  where a rank is missing by construction, so that the deadline itself is the answer
//
// Ranks wait for each other by evidence, never by the clock. The one exception watches that something does *not*
// happen.

#include "cohort/runtime/internal/backend_conformance.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <random>
#include <source_location>

#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);
constexpr absl::Duration kShort = absl::Seconds(2);

using Rank = ConformanceRank;
using Here = std::source_location;

// ---- Expectations, as a Status that says where ----

absl::Status Expect(bool condition, std::string_view what, Here here = Here::current()) {
  if (condition) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("line ", here.line(), ": ", what));
}

absl::Status ExpectOk(const absl::Status& status, Here here = Here::current()) {
  return Expect(status.ok(), absl::StrCat("expected OK, got ", status.ToString()), here);
}

absl::Status ExpectError(const absl::Status& status, absl::StatusCode code, std::initializer_list<std::string> texts,
                         Here here = Here::current()) {
  bool has_texts =
      std::ranges::all_of(texts, [&](std::string_view text) { return absl::StrContains(status.message(), text); });
  return Expect(status.code() == code && has_texts,
                absl::StrCat("expected ", absl::StatusCodeToString(code), " with \"", absl::StrJoin(texts, "\" and \""),
                             "\", got ", status.ToString()),
                here);
}

// Watches for as long as a rank that does not wait needs to give itself away. A slow one gets away with it; a sound one
// is never accused.
absl::Status ExpectNoSignOf(std::string_view event, const Rank& self, Here here = Here::current()) {
  for (SteadyTime end = After(SteadyNow(), absl::Milliseconds(50)); SteadyNow() < end;
       absl::SleepFor(absl::Milliseconds(5))) {
    ABSL_RETURN_IF_ERROR(
        Expect(self.evidence.Count(event) == 0, absl::StrCat(event, " before the last rank had come"), here));
  }
  return absl::OkStatus();
}

// The group has failed with `cause` and says so, whatever is asked of it.
absl::Status ExpectUnusable(ProcessGroup& group, absl::StatusCode cause, const std::string& text,
                            Here here = Here::current()) {
  std::string code = absl::StrCat(absl::StatusCodeToString(cause));
  ABSL_RETURN_IF_ERROR(ExpectError(group.Barrier(), absl::StatusCode::kFailedPrecondition, {code, text}, here));
  return ExpectError(group.Agree("after the failure", absl::OkStatus()), absl::StatusCode::kFailedPrecondition,
                     {code, text}, here);
}

// ---- Operations that the same rules hold for ----

using Operation = absl::Status (*)(ProcessGroup& group);

absl::Status DoBarrier(ProcessGroup& group) { return group.Barrier(); }
absl::Status DoAgree(ProcessGroup& group) { return group.Agree("together", absl::OkStatus()); }

std::string RankName(int rank) { return absl::StrCat("rank ", rank, " "); }

// ---- Ordinary behaviour ----

absl::Status WaitsForEveryRank(Rank& self, Operation operation) {
  const int size = self.group.world_size();
  for (int last = 0; last < size; ++last) {
    const std::string arrived = absl::StrCat("arrived-", last);
    const std::string passed = absl::StrCat("passed-", last);
    if (self.group.rank() == last) {
      ABSL_RETURN_IF_ERROR(self.evidence.Await(arrived, size - 1));
      ABSL_RETURN_IF_ERROR(ExpectNoSignOf(passed, self));
    }
    self.evidence.Note(arrived);
    ABSL_RETURN_IF_ERROR(ExpectOk(operation(self.group)));
    self.evidence.Note(passed);
    ABSL_RETURN_IF_ERROR(Expect(self.evidence.Count(arrived) == size, "passed before the last rank had come"));
  }
  return absl::OkStatus();
}

absl::Status BringsErrors(Rank& self) {
  const int rank = self.group.rank();
  absl::Status mine = rank == 0 ? absl::OkStatus() : absl::DataLossError(absl::StrCat("trouble ", rank));
  ABSL_RETURN_IF_ERROR(ExpectError(self.group.Agree("two fail", mine), absl::StatusCode::kDataLoss,
                                   {"rank 1: trouble 1 (and 1 other rank)"}));
  mine = rank == 2 ? absl::NotFoundError("no file") : absl::OkStatus();
  ABSL_RETURN_IF_ERROR(
      ExpectError(self.group.Agree("one fails", mine), absl::StatusCode::kNotFound, {"rank 2: no file"}));
  ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Barrier()));
  return ExpectOk(self.group.Agree("none fails", absl::OkStatus()));
}

// `size` bytes that depend on `seed`, zeros and line ends among them.
std::string Bytes(int64_t size, int seed) {
  std::minstd_rand random(seed + 1);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random() >> 8);
  return bytes;
}

absl::Status Broadcasts(Rank& self) {
  for (int64_t size : {int64_t{0}, int64_t{1}, int64_t{4096}, int64_t{5} << 20}) {
    absl::StatusOr<std::string> bytes = self.group.BroadcastBytes("bytes", Bytes(size, self.group.rank()));
    ABSL_RETURN_IF_ERROR(ExpectOk(bytes.status()));
    ABSL_RETURN_IF_ERROR(Expect(*bytes == Bytes(size, 0), absl::StrCat("other bytes, of ", size)));
  }
  absl::StatusOr<std::string> mine = "not from all";
  if (self.group.rank() == 1) mine = absl::DataLossError("oh");
  ABSL_RETURN_IF_ERROR(
      ExpectError(self.group.BroadcastBytes("fails", mine).status(), absl::StatusCode::kDataLoss, {"rank 1: oh"}));
  return ExpectOk(self.group.Barrier());
}

absl::Status Gathers(Rank& self) {
  const int rank = self.group.rank();
  for (int64_t size : {int64_t{0}, int64_t{1}, int64_t{1} << 20}) {
    // Of a different size on each rank.
    absl::StatusOr<std::vector<std::string>> all = self.group.GatherBytes("bytes", Bytes(size + rank, rank), size + 2);
    ABSL_RETURN_IF_ERROR(ExpectOk(all.status()));
    ABSL_RETURN_IF_ERROR(Expect(all->size() == (rank == 0 ? 3u : 0u), "bytes for a rank that is not to have them"));
    for (size_t from = 0; from < all->size(); ++from) {
      ABSL_RETURN_IF_ERROR(Expect((*all)[from] == Bytes(size + from, from), absl::StrCat("other bytes from ", from)));
    }
  }
  ABSL_RETURN_IF_ERROR(ExpectError(self.group.GatherBytes("too many", Bytes(10 + rank, 0), 11).status(),
                                   absl::StatusCode::kInvalidArgument, {"rank 2: brings 12 bytes; at most 11"}));
  return ExpectOk(self.group.Barrier());
}

// The ranks go through the same operations at their own pace. If two kinds could pair, contents or names would not
// match.
absl::Status Interleaves(Rank& self) {
  std::minstd_rand random(7);
  for (int i = 0; i < 200; ++i) {
    const std::string name = absl::StrCat("operation ", i);
    switch (random() % 4) {
      case 0:
        ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Barrier()));
        break;
      case 1:
        ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Agree(name, absl::OkStatus())));
        break;
      case 2: {
        absl::StatusOr<std::string> bytes = self.group.BroadcastBytes(name, name);
        ABSL_RETURN_IF_ERROR(Expect(bytes.ok() && *bytes == name, absl::StrCat(name, ": ", bytes.status().ToString())));
        break;
      }
      default: {
        absl::Status mine = absl::AbortedError(name);
        if (self.group.rank() != i % self.group.world_size()) mine = absl::OkStatus();
        ABSL_RETURN_IF_ERROR(ExpectError(self.group.Agree(name, mine), absl::StatusCode::kAborted, {name}));
      }
    }
  }
  return absl::OkStatus();
}

// ---- Failures ----

// The operation ends well on every rank before this returns on `last`. A barrier that is over there need not be over elsewhere:
// what that rank does next could fail it.
absl::Status EndsLastOn(int last, Rank& self, Operation operation) {
  ABSL_RETURN_IF_ERROR(ExpectOk(operation(self.group)));
  self.evidence.Note("through");
  return self.group.rank() == last ? self.evidence.Await("through", self.group.world_size()) : absl::OkStatus();
}

absl::Status NamesTheDead(Rank& self, int victim, Operation operation) {
  const int size = self.group.world_size();
  ABSL_RETURN_IF_ERROR(ExpectOk(operation(self.group)));
  if (self.group.rank() == victim) {
    ABSL_RETURN_IF_ERROR(self.evidence.Await("waiting", size - 1));
    self.die();
  }
  self.evidence.Note("waiting");
  ABSL_RETURN_IF_ERROR(ExpectError(operation(self.group), absl::StatusCode::kUnavailable, {RankName(victim)}));
  return ExpectUnusable(self.group, absl::StatusCode::kUnavailable, RankName(victim));
}

absl::Status NamesWhoDiedBefore(Rank& self, int victim, Operation operation) {
  ABSL_RETURN_IF_ERROR(EndsLastOn(victim, self, operation));
  if (self.group.rank() == victim) {
    self.evidence.Note("dying");
    self.die();
  }
  ABSL_RETURN_IF_ERROR(self.evidence.Await("dying", 1));
  ABSL_RETURN_IF_ERROR(ExpectError(operation(self.group), absl::StatusCode::kUnavailable, {RankName(victim)}));
  return ExpectUnusable(self.group, absl::StatusCode::kUnavailable, RankName(victim));
}

absl::Status HearsWhoAborts(Rank& self, int aborter, Operation operation) {
  ABSL_RETURN_IF_ERROR(ExpectOk(operation(self.group)));
  const std::string text = absl::StrCat("rank ", aborter, ": no more data");
  absl::Status status;
  if (self.group.rank() == aborter) {
    ABSL_RETURN_IF_ERROR(self.evidence.Await("waiting", self.group.world_size() - 1));
    status = self.group.Abort(absl::DataLossError("no more data"));
  } else {
    self.evidence.Note("waiting");
    status = operation(self.group);
  }
  ABSL_RETURN_IF_ERROR(ExpectError(status, absl::StatusCode::kDataLoss, {text}));
  return ExpectUnusable(self.group, absl::StatusCode::kDataLoss, text);
}

absl::Status NamesTheFrozen(Rank& self, int victim, Operation operation) {
  // It must be able to fail by its deadline alone; that it works is another check.
  if (self.group.rank() == victim) self.freeze();
  ABSL_RETURN_IF_ERROR(
      ExpectError(operation(self.group), absl::StatusCode::kDeadlineExceeded, {"waited", "missing", RankName(victim)}));
  return ExpectUnusable(self.group, absl::StatusCode::kDeadlineExceeded, RankName(victim));
}

absl::Status NamesTheAbsent(Rank& self, int absent, Operation operation) {
  if (self.group.rank() == absent) {
    ABSL_RETURN_IF_ERROR(self.evidence.Await("failed", self.group.world_size() - 1));
  }
  // The absent rank hears the same as those who have missed it, at its next call.
  absl::Status status = operation(self.group);
  self.evidence.Note("failed");
  ABSL_RETURN_IF_ERROR(ExpectError(status, absl::StatusCode::kDeadlineExceeded, {"waited", RankName(absent)}));
  return ExpectUnusable(self.group, absl::StatusCode::kDeadlineExceeded, RankName(absent));
}

absl::Status SaysWhoIsWhere(Rank& self) {
  absl::Status status = self.group.Agree(self.group.rank() == 1 ? "one" : "other", absl::OkStatus());
  ABSL_RETURN_IF_ERROR(
      ExpectError(status, absl::StatusCode::kFailedPrecondition, {"Agree \"one\"", "Agree \"other\"", "rank 1 "}));
  return ExpectUnusable(self.group, absl::StatusCode::kFailedPrecondition, "Agree \"one\"");
}

absl::Status SaysWhoIsInABarrier(Rank& self) {
  absl::Status status = self.group.rank() == 1 ? self.group.Barrier() : self.group.Agree("other", absl::OkStatus());
  ABSL_RETURN_IF_ERROR(
      ExpectError(status, absl::StatusCode::kFailedPrecondition, {"Agree \"other\"", "rank 1 in Barrier"}));
  return ExpectUnusable(self.group, absl::StatusCode::kFailedPrecondition, "Agree \"other\"");
}

// ---- The end ----

absl::Status ExpectOver(ProcessGroup& group) {
  ABSL_RETURN_IF_ERROR(ExpectError(group.Barrier(), absl::StatusCode::kFailedPrecondition, {"left the group"}));
  ABSL_RETURN_IF_ERROR(ExpectError(group.Agree("after the end", absl::OkStatus()),
                                   absl::StatusCode::kFailedPrecondition, {"left the group"}));
  return ExpectOk(group.Shutdown());
}

absl::Status MainRankLeavesFirst(Rank& self) {
  ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Barrier()));
  if (self.group.is_main()) {
    self.evidence.Note("leaving");
  } else {
    ABSL_RETURN_IF_ERROR(self.evidence.Await("leaving", 1));
  }
  if (self.group.rank() == 1) {
    ABSL_RETURN_IF_ERROR(ExpectNoSignOf("main-left", self));
  }
  ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Shutdown()));
  if (self.group.is_main()) self.evidence.Note("main-left");
  return ExpectOver(self.group);
}

absl::Status MainRankLeavesLast(Rank& self) {
  ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Barrier()));
  if (self.group.is_main()) {
    ABSL_RETURN_IF_ERROR(self.evidence.Await("gone", self.group.world_size() - 1));
  }
  ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Shutdown()));
  self.evidence.Note("gone");
  return ExpectOver(self.group);
}

absl::Status MissesWhoHasLeft(Rank& self, Operation operation) {
  ABSL_RETURN_IF_ERROR(ExpectOk(operation(self.group)));
  if (self.group.rank() == 1) {
    ABSL_RETURN_IF_ERROR(ExpectOk(self.group.Shutdown()));
    self.evidence.Note("gone");
    return absl::OkStatus();
  }
  ABSL_RETURN_IF_ERROR(self.evidence.Await("gone", 1));
  ABSL_RETURN_IF_ERROR(ExpectError(operation(self.group), absl::StatusCode::kFailedPrecondition, {"rank 1 has left"}));
  return ExpectUnusable(self.group, absl::StatusCode::kFailedPrecondition, "rank 1 has left");
}

// A rank that returns from its program without Shutdown: not a crash, and no riddle for the others.
absl::Status MissesWhoForgotToLeave(Rank& self, int leaver, Operation operation) {
  ABSL_RETURN_IF_ERROR(EndsLastOn(leaver, self, operation));
  if (self.group.rank() == leaver) return absl::OkStatus();
  return ExpectError(operation(self.group), absl::StatusCode::kFailedPrecondition,
                     {absl::StrCat("rank ", leaver, " has left")});
}

absl::Status LeavesAFailedGroupAtOnce(Rank& self, int victim) {
  ABSL_RETURN_IF_ERROR(EndsLastOn(victim, self, DoBarrier));
  if (self.group.rank() == victim) self.die();
  ABSL_RETURN_IF_ERROR(ExpectError(self.group.Barrier(), absl::StatusCode::kUnavailable, {RankName(victim)}));
  return ExpectOk(self.group.Shutdown());
}

// A check that holds for a barrier and for an agreement.
void AddForEach(std::vector<ConformanceCheck>& checks, const ConformanceCheck& check,
                std::function<absl::Status(Rank& self, Operation operation)> run) {
  for (auto [name, operation] : {std::pair("Barrier", DoBarrier), std::pair("Agree", DoAgree)}) {
    ConformanceCheck& added = checks.emplace_back(check);
    added.name += absl::StrCat("In", name);
    added.run = [run, operation = operation](Rank& self) { return run(self, operation); };
  }
}

}  // namespace

void Evidence::Note(std::string_view event) const {
  std::ofstream(std::filesystem::path(directory_) / absl::StrCat(event, ".", rank_)).flush();
}

int Evidence::Count(std::string_view event) const {
  std::string prefix = absl::StrCat(event, ".");
  std::filesystem::directory_iterator files(directory_);
  return static_cast<int>(std::count_if(begin(files), end(files), [&](const std::filesystem::directory_entry& file) {
    return absl::StartsWith(file.path().filename().native(), prefix);
  }));
}

absl::Status Evidence::Await(std::string_view event, int count) const {
  for (SteadyTime deadline = After(SteadyNow(), kLong); Count(event) < count; absl::SleepFor(absl::Milliseconds(1))) {
    if (SteadyNow() >= deadline) {
      return absl::InternalError(absl::StrCat(Count(event), " ranks have noted \"", event, "\", not ", count));
    }
  }
  return absl::OkStatus();
}

std::vector<ConformanceCheck> ConformanceChecks() {
  std::vector<ConformanceCheck> checks = {
      {"AnErrorReachesEveryRankAndTheGroupGoesOn", 3, kLong, {}, BringsErrors},
      {"TheMainRanksBytesReachEveryRank", 3, kLong, {}, Broadcasts},
      {"EveryRanksBytesReachTheMainRankWithinTheLimit", 3, kLong, {}, Gathers},
      {"OperationsOfDifferentKindsNeverPair", 3, kLong, {}, Interleaves},
      {"RanksInDifferentAgreementsLearnWhoIsWhere", 3, kLong, {}, SaysWhoIsWhere},
      {"RanksInABarrierAndAnAgreementLearnWhoIsWhere", 3, kShort, {}, SaysWhoIsInABarrier},
      {"TheMainRankMayComeFirstToShutdownAndLeavesLast", 4, kLong, {}, MainRankLeavesFirst},
      {"TheMainRankMayComeLastToShutdown", 4, kLong, {}, MainRankLeavesLast},
  };
  AddForEach(checks, {"EveryRankIsWaitedFor", 4, kLong, {}, nullptr}, WaitsForEveryRank);
  AddForEach(checks, {"ARankThatHasLeftIsNamed", 3, kLong, {}, nullptr}, MissesWhoHasLeft);
  for (int rank : {0, 2}) {
    const std::string of = absl::StrCat("OfRank", rank);
    auto bind = [rank](auto function) {
      return [rank, function](Rank& self, Operation operation) { return function(self, rank, operation); };
    };
    AddForEach(checks, {"ADeathIsNamedWhileOthersWait" + of, 3, kLong, {rank}, nullptr}, bind(NamesTheDead));
    AddForEach(checks, {"ADeathIsNamedAfterwards" + of, 3, kLong, {rank}, nullptr}, bind(NamesWhoDiedBefore));
    AddForEach(checks, {"AnAbortIsHeardAtOnce" + of, 3, kLong, {}, nullptr}, bind(HearsWhoAborts));
    AddForEach(checks, {"AFreezeIsNamedAtTheDeadline" + of, 3, kShort, {rank}, nullptr}, bind(NamesTheFrozen));
    AddForEach(checks, {"AnAbsenceIsNamedAtTheDeadline" + of, 3, kShort, {}, nullptr}, bind(NamesTheAbsent));
    AddForEach(checks, {"LeavingWithoutShutdownIsNamed" + of, 3, kLong, {}, nullptr}, bind(MissesWhoForgotToLeave));
    checks.push_back({"AFailedGroupIsLeftAtOnce" + of, 3, kLong, {rank}, [rank](Rank& self) {
                        return LeavesAFailedGroupAtOnce(self, rank);
                      }});
  }
  return checks;
}

}  // namespace cohort::internal
