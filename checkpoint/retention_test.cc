#include "cohort/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Checkpoints = std::vector<CheckpointInfo>;

constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

CheckpointInfo Checkpoint(int64_t sequence, int64_t step) {
  CheckpointInfo checkpoint;
  checkpoint.path = absl::StrCat("/run/step_", step, "-", sequence);
  checkpoint.sequence = sequence;
  checkpoint.step = step;
  checkpoint.saved = absl::UnixEpoch() + absl::Seconds(100 * sequence);
  return checkpoint;
}

CheckpointInfo WithLoss(int64_t sequence, int64_t step, std::optional<double> loss) {
  CheckpointInfo checkpoint = Checkpoint(sequence, step);
  if (loss.has_value()) checkpoint.metrics["loss"] = *loss;
  return checkpoint;
}

Checkpoints Without(const Checkpoints& all, const std::vector<size_t>& places) {
  Checkpoints left;
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::find(places.begin(), places.end(), i) == places.end()) left.push_back(all[i]);
  }
  return left;
}

// The steps of what stays, in the order of `all`.
std::vector<int64_t> StepsKept(const Checkpoints& all, const RetentionPolicy& policy) {
  std::vector<int64_t> steps;
  for (const CheckpointInfo& checkpoint : Without(all, PlanRetention(all, policy))) steps.push_back(checkpoint.step);
  return steps;
}

RetentionPolicy KeepBestLoss(KeepBest::Order order, int64_t count = 1) {
  return {.newest = 1, .best = {{.metric = "loss", .order = order, .count = count}}};
}
constexpr KeepBest::Order kLeast = KeepBest::Order::kLeast;
constexpr KeepBest::Order kGreatest = KeepBest::Order::kGreatest;

TEST(RetentionTest, WithoutAPolicyAllStay) {
  const Checkpoints all = {Checkpoint(1, 10), Checkpoint(2, 20)};
  EXPECT_THAT(PlanRetention(all, {}), IsEmpty());
  EXPECT_THAT(PlanRetention(all, {.one_every_steps = 1000}), IsEmpty());
  EXPECT_THAT(PlanRetention({}, {.newest = 1}), IsEmpty());
}

// RET-01: numbers, not their spelling; and keep=1 leaves the newest one and the best.
TEST(RetentionTest, TheHighestNumbersStayPastEveryPowerOfTen) {
  Checkpoints there;
  for (int64_t step = 900; step <= 10100; step += 100) {
    there.push_back(Checkpoint(step / 100, step));
    there = Without(there, PlanRetention(there, {.newest = 3}));
    std::vector<int64_t> steps;
    for (const CheckpointInfo& checkpoint : there) steps.push_back(checkpoint.step);
    std::vector<int64_t> expected;
    for (int64_t kept = std::max<int64_t>(900, step - 200); kept <= step; kept += 100) expected.push_back(kept);
    ASSERT_EQ(steps, expected);
  }
}

TEST(RetentionTest, KeepingOneLeavesTheNewestAndTheBest) {
  Checkpoints there;
  for (int64_t step = 900; step <= 10100; step += 100) {
    there.push_back(WithLoss(step / 100, step, step == 3000 ? 0.1 : 0.5));
    there = Without(there, PlanRetention(there, KeepBestLoss(kLeast)));
    EXPECT_EQ(there.back().step, step);
    EXPECT_EQ(there.front().step, step < 3000 ? step : 3000);
    EXPECT_EQ(there.size(), step <= 3000 ? 1 : 2);
  }
}

TEST(RetentionTest, NewestIsWhatWasSavedLastWhateverItsStep) {
  const Checkpoints all = {Checkpoint(1, 1000), Checkpoint(3, 500), Checkpoint(2, 2000)};
  EXPECT_THAT(StepsKept(all, {.newest = 1}), ElementsAre(500));
  EXPECT_THAT(StepsKept(all, {.newest = 2}), ElementsAre(500, 2000));
  EXPECT_THAT(StepsKept(all, {.newest = kMaxInt64}), ElementsAre(1000, 500, 2000));
}

TEST(RetentionTest, OldestGoesFirst) {
  const Checkpoints all = {Checkpoint(5, 1), Checkpoint(3, 2), Checkpoint(4, 3), Checkpoint(1, 4), Checkpoint(2, 5)};
  EXPECT_THAT(PlanRetention(all, {.newest = 1}), ElementsAre(3, 4, 1, 2));
}

TEST(RetentionTest, OfEverySoManyStepsTheFirstStays) {
  const Checkpoints all = {Checkpoint(1, 0),   Checkpoint(2, 60),  Checkpoint(3, 99), Checkpoint(4, 100),
                           Checkpoint(5, 190), Checkpoint(6, 350), Checkpoint(7, 360)};
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every_steps = 100}), ElementsAre(0, 100, 350, 360));
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every_steps = 1}), ElementsAre(0, 60, 99, 100, 190, 350, 360));
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every_steps = kMaxInt64}), ElementsAre(0, 360));
}

TEST(RetentionTest, OfAStepThatWasSavedTwiceTheLastStays) {
  const Checkpoints all = {Checkpoint(1, 100), Checkpoint(3, 100), Checkpoint(2, 100), Checkpoint(4, 150)};
  EXPECT_THAT(PlanRetention(all, {.newest = 1, .one_every_steps = 100}), ElementsAre(0, 2));
}

TEST(RetentionTest, TheHighestStepThatThereIsIsAStepAsAnyOther) {
  const Checkpoints all = {Checkpoint(1, kMaxInt64 - 1), Checkpoint(2, kMaxInt64), Checkpoint(3, 0)};
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every_steps = 1}), ElementsAre(kMaxInt64 - 1, kMaxInt64, 0));
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every_steps = kMaxInt64}), ElementsAre(kMaxInt64, 0));
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every_steps = kMaxInt64 - 2}), ElementsAre(kMaxInt64 - 1, 0));
}

TEST(RetentionTest, OfEverySoLongATimeTheFirstStays) {
  Checkpoints all;
  for (int64_t i = 1; i <= 10; ++i) all.push_back(Checkpoint(i, i));  // 100 s, 200 s, ...
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every = absl::Seconds(300)}), ElementsAre(1, 3, 6, 9, 10));
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every = absl::Hours(1)}), ElementsAre(1, 10));
  EXPECT_EQ(StepsKept(all, {.newest = 1, .one_every = absl::Nanoseconds(1) / 4}).size(), 10);
}

TEST(RetentionTest, AClockThatGoesBackMakesNoOneTheFirst) {
  Checkpoints all = {Checkpoint(1, 1), Checkpoint(2, 2), Checkpoint(3, 3)};
  all[0].saved = absl::UnixEpoch() + absl::Seconds(50);
  all[1].saved = absl::UnixEpoch() - absl::Seconds(10);  // an interval of its own
  all[2].saved = absl::UnixEpoch() + absl::Seconds(10);  // earlier than the one that was saved before
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every = absl::Minutes(1)}), ElementsAre(1, 2, 3));
  all.push_back(Checkpoint(4, 4));
  all[3].saved = absl::UnixEpoch();
  EXPECT_THAT(StepsKept(all, {.newest = 1, .one_every = absl::Minutes(1)}), ElementsAre(1, 2, 4));
}

TEST(RetentionTest, TheBestStays) {
  const Checkpoints all = {WithLoss(1, 1, 0.5), WithLoss(2, 2, 0.25), WithLoss(3, 3, 0.75), WithLoss(4, 4, 0.5)};
  EXPECT_THAT(StepsKept(all, KeepBestLoss(kLeast)), ElementsAre(2, 4));
  EXPECT_THAT(StepsKept(all, KeepBestLoss(kGreatest)), ElementsAre(3, 4));
  EXPECT_THAT(StepsKept(all, {.newest = 1, .best = {{"loss", kLeast}, {"loss", kGreatest}}}), ElementsAre(2, 3, 4));
}

TEST(RetentionTest, OfEqualsTheOneSavedLastIsBetter) {
  const Checkpoints all = {WithLoss(1, 1, 0.0), WithLoss(3, 3, -0.0), WithLoss(2, 2, 0.0), WithLoss(4, 4, 1)};
  EXPECT_THAT(StepsKept(all, KeepBestLoss(kLeast)), ElementsAre(3, 4));
  EXPECT_THAT(StepsKept(all, KeepBestLoss(kLeast, 2)), ElementsAre(3, 2, 4));
}

TEST(RetentionTest, NanComesAfterAllNumbersAndAMissingMetricAfterNan) {
  const Checkpoints all = {WithLoss(1, 1, kInfinity),   WithLoss(2, 2, kNan),       WithLoss(3, 3, std::nullopt),
                           WithLoss(4, 4, 0),           WithLoss(5, 5, -kInfinity), WithLoss(6, 6, -kNan),
                           WithLoss(7, 7, std::nullopt)};
  const auto best = [&](KeepBest::Order order, int64_t count) { return StepsKept(all, KeepBestLoss(order, count)); };
  EXPECT_THAT(best(kLeast, 1), ElementsAre(5, 7));
  EXPECT_THAT(best(kLeast, 2), ElementsAre(4, 5, 7));
  EXPECT_THAT(best(kLeast, 3), ElementsAre(1, 4, 5, 7));
  EXPECT_THAT(best(kLeast, 4), ElementsAre(1, 4, 5, 6, 7));
  EXPECT_THAT(best(kLeast, 5), ElementsAre(1, 2, 4, 5, 6, 7));
  EXPECT_THAT(best(kLeast, 7), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(best(kGreatest, 1), ElementsAre(1, 7));
  EXPECT_THAT(best(kGreatest, 4), ElementsAre(1, 4, 5, 6, 7));
}

TEST(RetentionTest, PinnedOnesStay) {
  Checkpoints all = {Checkpoint(1, 1), Checkpoint(2, 2), Checkpoint(3, 3)};
  all[0].pinned = true;
  EXPECT_THAT(StepsKept(all, {.newest = 1}), ElementsAre(1, 3));
}

TEST(RetentionTest, PoliciesAreChecked) {
  const auto is_invalid = [](std::string_view why) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::string(why)));
  };
  EXPECT_THAT(CheckRetentionPolicy({}), IsOk());
  EXPECT_THAT(CheckRetentionPolicy({.newest = 1, .one_every_steps = 1, .one_every = absl::Nanoseconds(1)}), IsOk());
  EXPECT_THAT(CheckRetentionPolicy({.newest = 0}), is_invalid("retention: newest is 0; it must be at least 1"));
  EXPECT_THAT(CheckRetentionPolicy({.newest = -3}), is_invalid("newest is -3"));
  EXPECT_THAT(CheckRetentionPolicy({.one_every_steps = 0}), is_invalid("one_every_steps is 0; it must be at least 1"));
  EXPECT_THAT(CheckRetentionPolicy({.one_every = absl::ZeroDuration()}), is_invalid("one_every is 0; it must be more"));
  EXPECT_THAT(CheckRetentionPolicy({.one_every = -absl::Seconds(2)}), is_invalid("one_every is -2s"));
  EXPECT_THAT(CheckRetentionPolicy({.one_every = absl::InfiniteDuration()}), is_invalid("one_every is inf"));
  EXPECT_THAT(CheckRetentionPolicy({.best = {{.metric = ""}}}), is_invalid("best: the name of a metric is \"\""));
  EXPECT_THAT(CheckRetentionPolicy({.best = {{.metric = "a\nb"}}}), is_invalid("is \"a\\nb\"; allowed is"));
  EXPECT_THAT(CheckRetentionPolicy({.best = {{.metric = "loss", .count = 0}}}),
              is_invalid("best: the count for loss is 0; it must be at least 1"));
}

// ---- Random checkpoints and policies, against another way to say what is kept ----

bool SavedAfter(const CheckpointInfo& a, const CheckpointInfo& b) {
  return std::tuple(a.sequence, a.step, a.path.size(), a.path) > std::tuple(b.sequence, b.step, b.path.size(), b.path);
}

bool IsBetter(const CheckpointInfo& a, const CheckpointInfo& b, const KeepBest& best) {
  const bool a_has = a.metrics.contains(best.metric), b_has = b.metrics.contains(best.metric);
  if (a_has != b_has) return a_has;
  if (a_has) {
    const double x = a.metrics.at(best.metric), y = b.metrics.at(best.metric);
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    if (x < y) return best.order == kLeast;
    if (x > y) return best.order == kGreatest;
  }
  return SavedAfter(a, b);
}

int64_t SecondsFloor(const CheckpointInfo& checkpoint, int64_t seconds) {
  const int64_t at = absl::ToInt64Seconds(checkpoint.saved - absl::UnixEpoch());
  return at >= 0 ? at / seconds : -((-at + seconds - 1) / seconds);
}

// Why a checkpoint is kept, by comparing it with each other one.
std::vector<std::string> Reasons(const CheckpointInfo& one, const Checkpoints& all, const RetentionPolicy& policy) {
  std::vector<std::string> reasons;
  if (one.pinned) reasons.push_back("pinned");
  const auto count = [&](auto condition) { return std::count_if(all.begin(), all.end(), condition); };
  if (!policy.newest.has_value()) reasons.push_back("no policy");
  if (policy.newest.has_value() &&
      count([&](const CheckpointInfo& other) { return SavedAfter(other, one); }) < *policy.newest) {
    reasons.push_back("newest");
  }
  if (policy.one_every_steps.has_value() &&
      count([&](const CheckpointInfo& other) {
        return other.step / *policy.one_every_steps == one.step / *policy.one_every_steps &&
               (other.step < one.step || (other.step == one.step && SavedAfter(other, one)));
      }) == 0) {
    reasons.push_back("steps");
  }
  if (policy.one_every.has_value()) {
    const int64_t seconds = absl::ToInt64Seconds(*policy.one_every);
    if (count([&](const CheckpointInfo& other) {
          return SecondsFloor(other, seconds) == SecondsFloor(one, seconds) && SavedAfter(one, other);
        }) == 0) {
      reasons.push_back("time");
    }
  }
  for (const KeepBest& best : policy.best) {
    if (count([&](const CheckpointInfo& other) { return IsBetter(other, one, best); }) < best.count) {
      reasons.push_back(absl::StrCat("best ", best.metric));
    }
  }
  return reasons;
}

class RandomRun {
 public:
  explicit RandomRun(uint32_t seed) : random_(seed) {}

  std::mt19937_64& random() { return random_; }

  Checkpoints MakeCheckpoints() {
    Checkpoints all(Number(0, 40));
    const bool has_copies = Number(0, 3) == 0;
    const int64_t most = Number(0, 4) == 0 ? kMaxInt64 : Number(1, 300);
    int64_t step = 0, seconds = Number(-500, 500);
    for (size_t i = 0; i < all.size(); ++i) {
      step = Number(0, 5) == 0 || step > most - 20 ? Number(0, most) : step + Number(0, 20);  // runs go back
      seconds += Number(0, 9) == 0 ? -Number(0, 1000) : Number(0, 60);                        // and so do clocks
      all[i] = Checkpoint(has_copies ? Number(0, 20) : static_cast<int64_t>(i), step);
      all[i].path = absl::StrCat("/run/", std::string(Number(0, 2), 'x'), i);
      all[i].saved = absl::UnixEpoch() + absl::Seconds(seconds);
      all[i].pinned = Number(0, 9) == 0;
      for (const std::string_view name : {"a", "b"}) {
        if (Number(0, 4) != 0) all[i].metrics[std::string(name)] = Metric();
      }
    }
    std::shuffle(all.begin(), all.end(), random_);
    return all;
  }

  RetentionPolicy MakePolicy() {
    RetentionPolicy policy;
    if (Number(0, 19) != 0) policy.newest = Number(1, 6);
    if (Number(0, 1) == 0) policy.one_every_steps = Number(0, 9) == 0 ? kMaxInt64 : Number(1, 60);
    if (Number(0, 1) == 0) policy.one_every = absl::Seconds(Number(1, 200));
    for (int64_t i = Number(0, 2); i > 0; --i) {
      constexpr std::string_view kNames[] = {"a", "b", "none"};
      policy.best.push_back({.metric = std::string(kNames[Number(0, 2)]),
                             .order = Number(0, 1) == 0 ? kLeast : kGreatest,
                             .count = Number(1, 4)});
    }
    return policy;
  }

 private:
  int64_t Number(int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random_); }

  double Metric() {
    const double special[] = {kNan, kInfinity, -kInfinity, 0.0, -0.0};
    const int64_t kind = Number(0, 19);
    return kind < 5 ? special[kind] : static_cast<double>(Number(-5, 5));
  }

  std::mt19937_64 random_;
};

TEST(RetentionPropertyTest, WhatStaysHasAReasonAndWhatGoesHasNone) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RandomRun run(seed);
  for (int round = 0; round < 3000; ++round) {
    const Checkpoints all = run.MakeCheckpoints();
    const RetentionPolicy policy = run.MakePolicy();
    ASSERT_THAT(CheckRetentionPolicy(policy), IsOk());
    const std::vector<size_t> plan = PlanRetention(all, policy);
    const std::set<size_t> goes(plan.begin(), plan.end());
    ASSERT_EQ(goes.size(), plan.size());
    for (size_t i = 1; i < plan.size(); ++i) ASSERT_TRUE(SavedAfter(all[plan[i]], all[plan[i - 1]]));
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<std::string> reasons = Reasons(all[i], all, policy);
      ASSERT_EQ(goes.contains(i), reasons.empty()) << "round " << round << ", checkpoint " << i;
    }
  }
}

TEST(RetentionPropertyTest, TheNewestTheBestAndThePinnedOnesNeverGo) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RandomRun run(seed);
  for (int round = 0; round < 3000; ++round) {
    const Checkpoints all = run.MakeCheckpoints();
    const RetentionPolicy policy = run.MakePolicy();
    for (const size_t i : PlanRetention(all, policy)) {
      ASSERT_FALSE(all[i].pinned);
      const auto is_newer = [&](const CheckpointInfo& other) { return SavedAfter(other, all[i]); };
      ASSERT_TRUE(std::any_of(all.begin(), all.end(), is_newer));
      for (const KeepBest& best : policy.best) {
        const auto is_better = [&](const CheckpointInfo& other) { return IsBetter(other, all[i], best); };
        ASSERT_TRUE(std::any_of(all.begin(), all.end(), is_better));
      }
    }
  }
}

TEST(RetentionPropertyTest, PlanningAgainRemovesNothingAndOrderDoesNotMatter) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RandomRun run(seed);
  const auto paths = [](const Checkpoints& all, const std::vector<size_t>& places) {
    std::vector<std::string> paths;
    for (const size_t i : places) paths.push_back(all[i].path);
    return paths;
  };
  for (int round = 0; round < 3000; ++round) {
    const Checkpoints all = run.MakeCheckpoints();
    const RetentionPolicy policy = run.MakePolicy();
    const std::vector<size_t> plan = PlanRetention(all, policy);
    ASSERT_THAT(PlanRetention(Without(all, plan), policy), IsEmpty());
    Checkpoints shuffled = all;
    std::shuffle(shuffled.begin(), shuffled.end(), run.random());
    ASSERT_EQ(paths(shuffled, PlanRetention(shuffled, policy)), paths(all, plan));
  }
}

// A process that dies after some removals must not have removed what is then still wanted.
TEST(RetentionPropertyTest, AfterPartOfAPlanTheRestIsThePlan) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  RandomRun run(seed);
  for (int round = 0; round < 3000; ++round) {
    const Checkpoints all = run.MakeCheckpoints();
    const RetentionPolicy policy = run.MakePolicy();
    const std::vector<size_t> plan = PlanRetention(all, policy);
    const auto half = plan.begin() + static_cast<std::ptrdiff_t>(plan.size() / 2);
    const Checkpoints left = Without(all, {plan.begin(), half});
    ASSERT_EQ(PlanRetention(left, policy).size(), static_cast<size_t>(plan.end() - half));
  }
}

}  // namespace
}  // namespace cohort
