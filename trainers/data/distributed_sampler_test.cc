#include "cohort/trainers/data/distributed_sampler.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/base/config.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

DistributedSampler Make(const DistributedSamplerOptions& options) {
  absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(options);
  ABSL_CHECK_OK(sampler);
  return *std::move(sampler);
}

SampledItems Next(DistributedSampler& sampler, int64_t items_of_all) {
  absl::StatusOr<SampledItems> items = sampler.Next(items_of_all);
  ABSL_CHECK_OK(items);
  return *std::move(items);
}

// The samplers of all ranks.
std::vector<DistributedSampler> MakeAll(DistributedSamplerOptions options, int num_replicas) {
  std::vector<DistributedSampler> samplers;
  options.num_replicas = num_replicas;
  for (options.rank = 0; options.rank < num_replicas; ++options.rank) samplers.push_back(Make(options));
  return samplers;
}

// What each rank gets in a step.
std::vector<std::vector<int64_t>> Step(std::vector<DistributedSampler>& samplers, int64_t items_of_all) {
  std::vector<std::vector<int64_t>> mine;
  for (DistributedSampler& sampler : samplers) mine.push_back(Next(sampler, items_of_all).mine);
  return mine;
}

std::vector<int64_t> Joined(const std::vector<std::vector<int64_t>>& lists) {
  std::vector<int64_t> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  std::sort(all.begin(), all.end());
  return all;
}

std::vector<int64_t> Iota(int64_t n) {
  std::vector<int64_t> items(n);
  std::iota(items.begin(), items.end(), 0);
  return items;
}

// The order of an epoch.
std::vector<int64_t> Order(DistributedSamplerOptions options, int64_t epoch = 0) {
  DistributedSampler sampler = Make(options);
  ABSL_CHECK_OK(sampler.SetEpoch(epoch));
  return Next(sampler, kAll).mine;
}

std::pair<size_t, size_t> LeastAndMost(const std::vector<std::vector<int64_t>>& lists) {
  std::pair<size_t, size_t> sizes = {lists[0].size(), lists[0].size()};
  for (const auto& list : lists) {
    sizes = {std::min(sizes.first, list.size()), std::max(sizes.second, list.size())};
  }
  return sizes;
}

// A state with some entries replaced.
c10::IValue With(const c10::IValue& state, const std::vector<std::pair<std::string, c10::IValue>>& changes) {
  c10::impl::GenericDict dict = state.toGenericDict().copy();
  for (const auto& [key, value] : changes) dict.insert_or_assign(key, value);
  return dict;
}

// ---- The order ----

TEST(DistributedSamplerTest, AnEpochHoldsEveryItemOnceInAnotherOrderEachTimeAndForEachSeed) {
  for (int64_t num_items : {1, 2, 442}) {
    std::vector<int64_t> items = Order({.num_items = num_items, .seed = 7}, 3);
    std::sort(items.begin(), items.end());
    EXPECT_EQ(items, Iota(num_items));
  }
  EXPECT_EQ(Order({.num_items = 442, .seed = 5}, 1), Order({.num_items = 442, .seed = 5}, 1));
  EXPECT_NE(Order({.num_items = 442}, 0), Order({.num_items = 442}, 1));
  EXPECT_NE(Order({.num_items = 442}), Order({.num_items = 442, .seed = 1}));
}

// Python's torch.randperm(10, generator=torch.Generator().manual_seed(3)); //tests/python:sampler_test compares more.
TEST(DistributedSamplerTest, TheOrderIsThatOfPythonsSampler) {
  EXPECT_THAT(Order({.num_items = 10, .seed = 3}), ElementsAre(6, 0, 3, 7, 8, 5, 1, 9, 2, 4));
}

TEST(DistributedSamplerTest, WithoutShufflingItIsTheItemsOwnOrder) {
  EXPECT_EQ(Order({.num_items = 5, .shuffle = false}, 4), Iota(5));
}

// As Python's: a change would be a change of every run.
TEST(DistributedSamplerTest, SeedAndEpochAddUpAndTheirLower32BitsCount) {
  EXPECT_EQ(Order({.num_items = 50, .seed = 2}, 1), Order({.num_items = 50, .seed = 1}, 2));
  EXPECT_EQ(Order({.num_items = 50, .seed = uint64_t{1} << 32}), Order({.num_items = 50}));
  EXPECT_EQ(Order({.num_items = 50, .seed = std::numeric_limits<uint64_t>::max()}, 2), Order({.num_items = 50}, 1));
}

// ---- Shares ----

TEST(DistributedSamplerTest, RanksTakeTurns) {
  std::vector<DistributedSampler> ranks = MakeAll({.num_items = 10, .shuffle = false}, 3);
  EXPECT_THAT(Step(ranks, 4), ElementsAre(ElementsAre(0, 3), ElementsAre(1), ElementsAre(2)));
  EXPECT_THAT(Step(ranks, 4), ElementsAre(ElementsAre(6), ElementsAre(4, 7), ElementsAre(5)));
  EXPECT_THAT(Step(ranks, 4), ElementsAre(ElementsAre(9), ElementsAre(), ElementsAre(8)));
}

TEST(DistributedSamplerTest, AnUnevenEpochUsesEveryItemOnceAndSharesDifferByAtMostOne) {
  for (const int64_t num_items : {1, 3, 32, 442}) {
    for (const int num_replicas : {1, 2, 3, 4, 7, 64}) {
      std::vector<DistributedSampler> ranks = MakeAll({.num_items = num_items, .seed = 5}, num_replicas);
      std::vector<std::vector<int64_t>> epoch(num_replicas);
      while (!ranks[0].is_at_end()) {
        const std::vector<std::vector<int64_t>> step = Step(ranks, 10);
        const auto [least, most] = LeastAndMost(step);
        EXPECT_LE(most - least, 1);
        for (int rank = 0; rank < num_replicas; ++rank) {
          epoch[rank].insert(epoch[rank].end(), step[rank].begin(), step[rank].end());
        }
      }
      const auto [least, most] = LeastAndMost(epoch);
      EXPECT_LE(most - least, 1);
      EXPECT_EQ(Joined(epoch), Iota(num_items)) << num_items << " items, " << num_replicas << " ranks";
    }
  }
}

TEST(DistributedSamplerTest, WhichItemsAStepUsesDoesNotDependOnTheNumberOfRanks) {
  std::vector<DistributedSampler> one = MakeAll({.num_items = 100, .seed = 2}, 1);
  std::vector<DistributedSampler> four = MakeAll({.num_items = 100, .seed = 2}, 4);
  while (!one[0].is_at_end()) EXPECT_EQ(Joined(Step(one, 7)), Joined(Step(four, 7)));
  EXPECT_TRUE(four[3].is_at_end());
}

TEST(DistributedSamplerTest, EveryRankKnowsHowManyItemsAStepHas) {
  for (DistributedSampler& sampler : MakeAll({.num_items = 5}, 4)) {
    EXPECT_EQ(Next(sampler, 3).num_of_all, 3);
    EXPECT_EQ(Next(sampler, 3).num_of_all, 2);
    EXPECT_TRUE(sampler.is_at_end());
  }
}

TEST(DistributedSamplerTest, WithFewerItemsThanRanksSomeRanksHaveNone) {
  std::vector<DistributedSampler> ranks = MakeAll({.num_items = 2, .shuffle = false}, 4);
  EXPECT_THAT(Step(ranks, 100), ElementsAre(ElementsAre(0), ElementsAre(1), IsEmpty(), IsEmpty()));
  for (const DistributedSampler& sampler : ranks) EXPECT_TRUE(sampler.is_at_end());
}

TEST(DistributedSamplerTest, PaddingUsesTheFirstItemsAgain) {
  std::vector<DistributedSampler> ranks = MakeAll({.num_items = 5, .shuffle = false, .tail = SamplerTail::kPad}, 3);
  EXPECT_EQ(ranks[0].items_in_epoch(), 6);
  EXPECT_THAT(Step(ranks, kAll), ElementsAre(ElementsAre(0, 3), ElementsAre(1, 4), ElementsAre(2, 0)));
}

TEST(DistributedSamplerTest, PaddingGoesAroundAsOftenAsThereAreRanks) {
  std::vector<DistributedSampler> ranks = MakeAll({.num_items = 2, .shuffle = false, .tail = SamplerTail::kPad}, 5);
  EXPECT_THAT(Step(ranks, kAll),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(0), ElementsAre(1), ElementsAre(0)));
}

TEST(DistributedSamplerTest, DroppingLeavesOutTheLastItems) {
  std::vector<DistributedSampler> ranks = MakeAll({.num_items = 5, .shuffle = false, .tail = SamplerTail::kDrop}, 3);
  EXPECT_THAT(Step(ranks, kAll), ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  EXPECT_TRUE(ranks[0].is_at_end());
}

TEST(DistributedSamplerTest, DroppingFewerItemsThanRanksLeavesNothing) {
  DistributedSampler sampler = Make({.num_items = 2, .num_replicas = 3, .tail = SamplerTail::kDrop});
  EXPECT_TRUE(sampler.is_at_end());
  EXPECT_THAT(sampler.Next(1), StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("all of its 0 items are used")));
}

TEST(DistributedSamplerTest, NothingIsPaddedOrDroppedWhereRanksDivideTheItems) {
  for (const SamplerTail tail : {SamplerTail::kPad, SamplerTail::kDrop}) {
    std::vector<DistributedSampler> ranks = MakeAll({.num_items = 12, .tail = tail}, 4);
    EXPECT_EQ(Joined(Step(ranks, kAll)), Iota(12));
  }
}

// ---- Steps ----

TEST(DistributedSamplerTest, AStepOfNoItemsIsRefused) {
  DistributedSampler sampler = Make({.num_items = 5});
  EXPECT_THAT(sampler.Next(0), StatusIs(kInvalid, "a step of 0 items of all ranks; it must be at least 1"));
  EXPECT_THAT(sampler.Next(-3), StatusIs(kInvalid, HasSubstr("-3 items")));
  EXPECT_THAT(sampler.Skip(0), StatusIs(kInvalid, HasSubstr("0 items")));
  EXPECT_EQ(sampler.items_done(), 0);
}

TEST(DistributedSamplerTest, BehindTheEndIsNothing) {
  DistributedSampler sampler = Make({.num_items = 5});
  Next(sampler, 9);
  EXPECT_THAT(sampler.Next(1),
              StatusIs(absl::StatusCode::kOutOfRange, "epoch 0 is at its end: all of its 5 items are used"));
  ABSL_EXPECT_OK(sampler.SetEpoch(1));
  EXPECT_EQ(Next(sampler, 9).num_of_all, 5);
}

TEST(DistributedSamplerTest, SkippingGoesTheSameWay) {
  DistributedSampler taking = Make({.num_items = 50, .num_replicas = 3, .rank = 1, .seed = 4}), skipping = taking;
  Next(taking, 7);
  ABSL_ASSERT_OK(skipping.Skip(7));
  EXPECT_EQ(Next(taking, 20).mine, Next(skipping, 20).mine);
}

TEST(DistributedSamplerTest, AnEpochCanBeBegunAgain) {
  DistributedSampler sampler = Make({.num_items = 50, .seed = 4});
  const std::vector<int64_t> first = Next(sampler, 10).mine;
  ABSL_ASSERT_OK(sampler.SetEpoch(0));
  EXPECT_EQ(Next(sampler, 10).mine, first);
  EXPECT_THAT(sampler.SetEpoch(-1), StatusIs(kInvalid, HasSubstr("epoch is -1")));
  EXPECT_EQ(sampler.items_done(), 10);
}

// ---- Options ----

TEST(DistributedSamplerTest, OptionsOutOfRangeAreNamedWithWhatIsAllowed) {
  const auto expect_refused = [](const DistributedSamplerOptions& options, std::string_view why) {
    EXPECT_THAT(DistributedSampler::Create(options), StatusIs(kInvalid, HasSubstr(why)));
  };
  expect_refused({.num_items = 0}, "num_items is 0; it must be from 1 to 9007199254740992");
  expect_refused({.num_items = -1}, "num_items is -1");
  expect_refused({.num_items = kAll}, "num_items is 9223372036854775807");
  expect_refused({.num_items = 5, .num_replicas = 0}, "num_replicas is 0");
  expect_refused({.num_items = 5, .num_replicas = 2, .rank = 2}, "rank is 2; it must be from 0 to 1");
  expect_refused({.num_items = 5, .num_replicas = 2, .rank = -1}, "rank is -1");
  expect_refused({.num_items = 5, .tail = static_cast<SamplerTail>(7)}, "tail is 7");
}

// A sanitizer's allocator ends the program instead.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
TEST(DistributedSamplerTest, MemoryThatIsNotThereIsAnErrorOfTheStep) {
  DistributedSampler sampler = Make({.num_items = int64_t{1} << 53});
  EXPECT_THAT(sampler.Next(1), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(sampler.items_done(), 0);
}
#endif

TEST(DistributedSamplerTest, ManyItemsNeedMemoryOnlyToBeShuffled) {
  DistributedSampler sampler = Make({.num_items = int64_t{1} << 53});
  ABSL_EXPECT_OK(sampler.Skip(1));
  DistributedSampler unshuffled = Make({.num_items = int64_t{1} << 53, .shuffle = false});
  EXPECT_THAT(Next(unshuffled, 2).mine, ElementsAre(0, 1));
}

// ---- The position ----

TEST(DistributedSamplerTest, GoesOnWithinAnEpoch) {
  DistributedSampler whole = Make({.num_items = 100, .num_replicas = 3, .rank = 2, .seed = 8});
  ABSL_ASSERT_OK(whole.SetEpoch(6));
  Next(whole, 31);
  DistributedSampler resumed = Make(whole.options());
  ABSL_ASSERT_OK(resumed.Load(whole.State()));
  EXPECT_EQ(resumed.epoch(), 6);
  EXPECT_EQ(resumed.items_done(), 31);
  EXPECT_EQ(Next(resumed, 50).mine, Next(whole, 50).mine);
}

TEST(DistributedSamplerTest, AllRanksSaveTheSame) {
  std::vector<DistributedSampler> ranks = MakeAll({.num_items = 10}, 3);
  Step(ranks, 4);
  const auto text = [](const DistributedSampler& sampler) { return (std::ostringstream() << sampler.State()).str(); };
  EXPECT_EQ(text(ranks[0]), text(ranks[2]));
  EXPECT_THAT(text(ranks[0]), HasSubstr("items_done"));
}

TEST(DistributedSamplerTest, AnotherNumberOfRanksUsesWhatIsLeftOnce) {
  for (const int before : {1, 2, 4, 5}) {
    for (const int after : {1, 2, 3, 7}) {
      std::vector<DistributedSampler> old_ranks = MakeAll({.num_items = 101, .seed = 3}, before);
      std::vector<int64_t> used = Joined(Step(old_ranks, 40));
      std::vector<DistributedSampler> ranks = MakeAll({.num_items = 101, .seed = 3}, after);
      for (DistributedSampler& rank : ranks) ABSL_ASSERT_OK(rank.Load(old_ranks[0].State()));
      const std::vector<std::vector<int64_t>> rest = Step(ranks, kAll);
      for (const auto& list : rest) used.insert(used.end(), list.begin(), list.end());
      std::sort(used.begin(), used.end());
      EXPECT_EQ(used, Iota(101)) << before << " ranks, then " << after;
      EXPECT_LE(LeastAndMost(rest).second - LeastAndMost(rest).first, 1);
    }
  }
}

TEST(DistributedSamplerTest, AnEpochThatWasAtItsEndStaysThere) {
  for (const SamplerTail tail : {SamplerTail::kUneven, SamplerTail::kPad, SamplerTail::kDrop}) {
    for (const auto& [before, after] : {std::pair(4, 1), std::pair(1, 4), std::pair(4, 3)}) {
      DistributedSampler old_rank = Make({.num_items = 10, .num_replicas = before, .tail = tail});
      ABSL_ASSERT_OK(old_rank.Skip(kAll));
      DistributedSampler rank = Make({.num_items = 10, .num_replicas = after, .tail = tail});
      ABSL_ASSERT_OK(rank.Load(old_rank.State()));
      EXPECT_TRUE(rank.is_at_end());
      EXPECT_EQ(rank.items_done(), rank.items_in_epoch());
    }
  }
}

TEST(DistributedSamplerTest, TheTailIsThatOfTheRanksThatGoOn) {
  DistributedSampler two = Make({.num_items = 10, .num_replicas = 2, .tail = SamplerTail::kDrop});
  ABSL_ASSERT_OK(two.Skip(9));
  DistributedSampler four = Make({.num_items = 10, .num_replicas = 4, .tail = SamplerTail::kDrop});
  ABSL_ASSERT_OK(four.Load(two.State()));
  EXPECT_TRUE(four.is_at_end());  // it uses 8

  DistributedSampler three = Make({.num_items = 10, .num_replicas = 3, .tail = SamplerTail::kPad});
  DistributedSampler padded = Make({.num_items = 10, .num_replicas = 4, .tail = SamplerTail::kPad});
  ABSL_ASSERT_OK(padded.Skip(11));
  ABSL_ASSERT_OK(three.Load(padded.State()));
  EXPECT_EQ(Next(three, kAll).num_of_all, 1);
}

TEST(DistributedSamplerTest, ThePositionOfAnotherDataSetIsRefused) {
  DistributedSampler sampler = Make({.num_items = 10, .data_checksum = 5});
  ABSL_ASSERT_OK(sampler.Skip(4));
  const DistributedSampler before = sampler;
  const c10::IValue longer = Make({.num_items = 11, .data_checksum = 5}).State();
  const c10::IValue changed = Make({.num_items = 10, .data_checksum = 6}).State();
  EXPECT_THAT(sampler.Load(longer),
              StatusIs(kInvalid,
                       "the sampler's state: saved with num_items=11, after 0 items of epoch 0; now "
                       "num_items=10: a position in one data set means nothing in another one"));
  EXPECT_THAT(sampler.Load(changed),
              StatusIs(kInvalid, AllOf(HasSubstr("saved with data_checksum=6"), HasSubstr("now data_checksum=5"))));
  EXPECT_EQ(sampler.items_done(), before.items_done());
}

TEST(DistributedSamplerTest, WithinAnEpochSeedShuffleAndTailStay) {
  const DistributedSamplerOptions options = {.num_items = 10, .seed = 5};
  DistributedSampler saved = Make(options);
  ABSL_ASSERT_OK(saved.Skip(4));
  const auto load = [&](const DistributedSamplerOptions& now) { return Make(now).Load(saved.State()); };
  EXPECT_THAT(
      load({.num_items = 10, .seed = 6}),
      StatusIs(kInvalid, HasSubstr("saved with seed=5, after 4 items of epoch 0; now seed=6: the epoch that was "
                                   "begun is to be finished in its own order")));
  EXPECT_THAT(load({.num_items = 10, .shuffle = false, .seed = 5}),
              StatusIs(kInvalid, AllOf(HasSubstr("saved with shuffle=true"), HasSubstr("now shuffle=false"))));
  EXPECT_THAT(load({.num_items = 10, .seed = 5, .tail = SamplerTail::kPad}),
              StatusIs(kInvalid, AllOf(HasSubstr("saved with tail=uneven"), HasSubstr("now tail=pad"))));
  ABSL_EXPECT_OK(load(options));
}

TEST(DistributedSamplerTest, BetweenEpochsSeedShuffleAndTailMayChange) {
  DistributedSampler saved = Make({.num_items = 10, .seed = 5});
  ABSL_ASSERT_OK(saved.SetEpoch(3));
  DistributedSampler now = Make({.num_items = 10, .shuffle = false, .seed = 6, .tail = SamplerTail::kPad});
  ABSL_EXPECT_OK(now.Load(saved.State()));
  EXPECT_EQ(now.epoch(), 3);
  ABSL_ASSERT_OK(saved.Skip(kAll));
  ABSL_EXPECT_OK(now.Load(saved.State()));
  EXPECT_TRUE(now.is_at_end());
}

TEST(DistributedSamplerTest, TheLargestSeedIsSaved) {
  const DistributedSamplerOptions options = {.num_items = 10, .seed = std::numeric_limits<uint64_t>::max()};
  DistributedSampler saved = Make(options);
  ABSL_ASSERT_OK(saved.Skip(1));
  ABSL_EXPECT_OK(Make(options).Load(saved.State()));
}

TEST(DistributedSamplerTest, WhatNoSamplerSavesIsRefused) {
  DistributedSampler sampler = Make({.num_items = 10, .num_replicas = 4, .tail = SamplerTail::kPad});
  ABSL_ASSERT_OK(sampler.Skip(4));
  const c10::IValue good = sampler.State();
  const auto expect_refused = [&](const c10::IValue& state, std::string_view why) {
    EXPECT_THAT(sampler.Load(state), StatusIs(kInvalid, HasSubstr(why)));
    EXPECT_EQ(sampler.items_done(), 4) << why;
  };
  expect_refused(c10::IValue(), "the sampler's state is None, not a dict");
  expect_refused(c10::IValue("items_done"), "is a str, not a dict");
  expect_refused(With(good, {{"items_done", "4"}}), "\"items_done\" is a str");
  expect_refused(With(good, {{"surprise", 1}}), "surprise");
  c10::impl::GenericDict shorter = good.toGenericDict().copy();
  ASSERT_EQ(shorter.erase("epoch"), 1);
  expect_refused(shorter, "has no \"epoch\"");
  expect_refused(With(good, {{"items_done", -1}}), "items_done is -1; it must be from 0 to 12");
  expect_refused(With(good, {{"items_done", 13}}), "items_done is 13; it must be from 0 to 12");
  expect_refused(With(good, {{"epoch", -1}}), "epoch is -1");
  expect_refused(With(good, {{"num_items", 0}}), "num_items is 0");
  expect_refused(With(good, {{"num_items", -10}}), "num_items is -10");
  expect_refused(With(good, {{"num_replicas", 0}}), "num_replicas is 0");
  expect_refused(With(good, {{"num_replicas", kAll}}), "num_replicas is 9223372036854775807");
  expect_refused(With(good, {{"data_checksum", -1}}), "data_checksum is -1");
  expect_refused(With(good, {{"seed", "-1"}}), "seed is \"-1\"");
  expect_refused(With(good, {{"seed", " 1"}}), "seed is \" 1\"");
  expect_refused(With(good, {{"seed", "18446744073709551616"}}), "seed is \"18446744073709551616\"");
  expect_refused(With(good, {{"tail", "pad\n"}}), "tail is \"pad\\n\"; it must be \"uneven\", \"pad\" or \"drop\"");
  ABSL_EXPECT_OK(sampler.Load(good));
}

}  // namespace
}  // namespace cohort
