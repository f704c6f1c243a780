// The conformance suite with threads as ranks; and what it says of backends that are wrong on purpose.

#include "cohort/runtime/internal/backend_conformance.h"

#include <stdlib.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>  // NOLINT
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/backend.h"
#include "cohort/runtime/internal/in_process_backend.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/runtime/testing/thread_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string MakeDirectory() {
  std::string directory = absl::StrCat(::testing::TempDir(), "/conformance.XXXXXX");
  ABSL_CHECK(mkdtemp(directory.data()) != nullptr) << directory;
  return directory;
}

class InProcessConformanceTest : public ::testing::TestWithParam<ConformanceCheck> {};

TEST_P(InProcessConformanceTest, Holds) {
  const ConformanceCheck& check = GetParam();
  const std::string directory = MakeDirectory();
  testing::ThreadGroup threads({.world_size = check.world_size, .group = {.timeout = check.timeout}});
  std::vector<absl::Status> outcomes = threads.Run([&](ProcessGroup& group) {
    ConformanceRank self{.group = group,
                         .evidence = Evidence(directory, group.rank()),
                         .die = [&] { threads.Die(group); },
                         .freeze = [&] { threads.Freeze(group); }};
    return check.run(self);
  });
  for (int rank = 0; rank < check.world_size; ++rank) {
    if (std::ranges::count(check.casualties, rank) > 0) {
      EXPECT_THAT(outcomes[rank], StatusIs(absl::StatusCode::kCancelled));
    } else {
      EXPECT_THAT(outcomes[rank], IsOk()) << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, InProcessConformanceTest, ::testing::ValuesIn(ConformanceChecks()),
                         [](const auto& info) { return info.param.name; });

// ---- Known-bad backends ----

// Does what the in-process backend does, until a flaw is put in.
class FlawedBackend : public Backend {
 public:
  explicit FlawedBackend(std::unique_ptr<Backend> sound) : sound_(std::move(sound)) {}

  std::string_view name() const override { return "flawed"; }
  absl::Status Barrier(absl::Duration timeout) override { return sound_->Barrier(timeout); }
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override { return sound_->Meet(std::move(arrival)); }
  absl::Status Leave(absl::Duration timeout) override { return sound_->Leave(timeout); }
  absl::Status Explain(std::string_view name, const absl::Status& error, absl::Duration waited) override {
    return sound_->Explain(name, error, waited);
  }
  absl::Status Abort(const absl::Status& why) override { return sound_->Abort(why); }

 protected:
  Backend& sound() { return *sound_; }

 private:
  std::unique_ptr<Backend> sound_;
};

class BarrierThatDoesNotWait : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::Status Barrier(absl::Duration) override { return absl::OkStatus(); }
};

class AgreementThatDoesNotWait : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override { return {{std::move(arrival.payload)}}; }
};

class AgreementThatForgetsErrors : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override {
    arrival.status = absl::OkStatus();
    return sound().Meet(std::move(arrival));
  }
};

class BroadcastThatGarbles : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override {
    absl::StatusOr<std::vector<std::string>> payloads = sound().Meet(std::move(arrival));
    if (payloads.ok() && payloads->size() == 1 && !payloads->front().empty()) payloads->front().back() ^= 1;
    return payloads;
  }
};

class GatherToEverybody : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override {
    if (arrival.delivery == Delivery::kAllToMain) arrival.delivery = Delivery::kAllToAll;
    return sound().Meet(std::move(arrival));
  }
};

class NamesAreIgnored : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::StatusOr<std::vector<std::string>> Meet(Arrival arrival) override {
    arrival.operation = "any";
    return sound().Meet(std::move(arrival));
  }
};

class MainRankDoesNotWaitToLeave : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::Status Leave(absl::Duration) override {
    sound().Leave(absl::ZeroDuration()).IgnoreError();
    return absl::OkStatus();
  }
};

class DeathIsTakenForSlowness : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::Status Barrier(absl::Duration timeout) override {
    absl::Status status = sound().Barrier(timeout);
    return absl::IsUnavailable(status) ? absl::DeadlineExceededError(status.message()) : status;
  }
};

class FailureIsForgotten : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::Status Barrier(absl::Duration timeout) override {
    absl::Status status = sound().Barrier(timeout);
    return absl::IsFailedPrecondition(status) ? absl::OkStatus() : status;
  }
};

class AbortThatNobodyHears : public FlawedBackend {
 public:
  using FlawedBackend::FlawedBackend;
  absl::Status Abort(const absl::Status& why) override {
    sound().Leave(absl::ZeroDuration()).IgnoreError();
    return why;
  }
};

// Ends the thread of a rank that has died.
struct Gone {};

// The outcomes of a check, by rank, over backends of type `Flawed`.
template <typename Flawed>
std::vector<absl::Status> OutcomesWith(std::string_view check_name) {
  std::vector<ConformanceCheck> checks = ConformanceChecks();
  auto check = std::ranges::find(checks, check_name, &ConformanceCheck::name);
  ABSL_CHECK(check != checks.end()) << check_name;
  const std::string directory = MakeDirectory();
  InProcessHub hub(check->world_size);
  std::vector<absl::Status> outcomes(check->world_size);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < check->world_size; ++rank) {
    threads.emplace_back([&, rank] {
      ProcessGroup group({.rank = rank, .world_size = check->world_size}, std::make_unique<Flawed>(hub.Connect(rank)),
                         {.timeout = check->timeout});
      ConformanceRank self{.group = group, .evidence = Evidence(directory, rank), .die = [&hub, rank] {
                             hub.Kill(rank);
                             throw Gone();
                           }};
      try {
        outcomes[rank] = check->run(self);
      } catch (Gone) {
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

auto Finds(std::string_view text) { return Contains(StatusIs(absl::StatusCode::kInternal, HasSubstr(text))); }

TEST(BackendConformanceTest, FindsABarrierThatDoesNotWait) {
  EXPECT_THAT(OutcomesWith<BarrierThatDoesNotWait>("EveryRankIsWaitedForInBarrier"), Finds("before"));
}

TEST(BackendConformanceTest, FindsAnAgreementThatDoesNotWait) {
  EXPECT_THAT(OutcomesWith<AgreementThatDoesNotWait>("EveryRankIsWaitedForInAgree"), Finds("before"));
}

TEST(BackendConformanceTest, FindsAnAgreementThatForgetsErrors) {
  EXPECT_THAT(OutcomesWith<AgreementThatForgetsErrors>("AnErrorReachesEveryRankAndTheGroupGoesOn"), Finds("got OK"));
}

TEST(BackendConformanceTest, FindsABroadcastThatGarbles) {
  EXPECT_THAT(OutcomesWith<BroadcastThatGarbles>("TheMainRanksBytesReachEveryRank"), Finds("other bytes, of 1"));
}

TEST(BackendConformanceTest, FindsAGatherToEverybody) {
  EXPECT_THAT(OutcomesWith<GatherToEverybody>("EveryRanksBytesReachTheMainRankWithinTheLimit"),
              Finds("not to have them"));
}

TEST(BackendConformanceTest, FindsThatNamesAreIgnored) {
  EXPECT_THAT(OutcomesWith<NamesAreIgnored>("RanksInDifferentAgreementsLearnWhoIsWhere"), Finds("got OK"));
}

TEST(BackendConformanceTest, FindsAMainRankThatDoesNotWaitToLeave) {
  EXPECT_THAT(OutcomesWith<MainRankDoesNotWaitToLeave>("TheMainRankMayComeFirstToShutdownAndLeavesLast"),
              Finds("main-left before"));
}

TEST(BackendConformanceTest, FindsADeathThatIsTakenForSlowness) {
  EXPECT_THAT(OutcomesWith<DeathIsTakenForSlowness>("ADeathIsNamedWhileOthersWaitOfRank2InBarrier"),
              Finds("DEADLINE_EXCEEDED"));
}

TEST(BackendConformanceTest, FindsAnAbortThatNobodyHears) {
  EXPECT_THAT(OutcomesWith<AbortThatNobodyHears>("AnAbortIsHeardAtOnceOfRank2InAgree"), Finds("has left"));
}

TEST(BackendConformanceTest, FindsAFailureThatIsForgotten) {
  EXPECT_THAT(OutcomesWith<FailureIsForgotten>("ADeathIsNamedWhileOthersWaitOfRank0InAgree"), Finds("got OK"));
}

}  // namespace
}  // namespace cohort::internal
