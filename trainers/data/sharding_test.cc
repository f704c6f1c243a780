#include "cohort/trainers/data/sharding.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::vector<int64_t> Sorted(std::vector<int64_t> rows) {
  std::sort(rows.begin(), rows.end());
  return rows;
}

std::vector<int64_t> Iota(int64_t n) {
  std::vector<int64_t> rows(n);
  for (int64_t i = 0; i < n; ++i) rows[i] = i;
  return rows;
}

TEST(EpochOrderTest, HoldsEveryRowOnce) {
  for (int64_t num_rows : {0, 1, 2, 442}) EXPECT_EQ(Sorted(EpochOrder(num_rows, 7, 3)), Iota(num_rows));
}

TEST(EpochOrderTest, IsAnotherOneEachEpochAndForEachSeed) {
  EXPECT_NE(EpochOrder(442, 0, 0), EpochOrder(442, 0, 1));
  EXPECT_NE(EpochOrder(442, 0, 0), EpochOrder(442, 1, 0));
  EXPECT_NE(EpochOrder(442, 0, 0), EpochOrder(442, uint64_t{1} << 32, 0));
  // Seeds and epochs must not add up: epoch 1 of seed 0 is not epoch 0 of seed 1.
  EXPECT_NE(EpochOrder(442, 0, 1), EpochOrder(442, 1, 0));
}

TEST(EpochOrderTest, IsTheSameOnEveryMachine) {
  EXPECT_THAT(EpochOrder(10, 0, 0), ElementsAre(8, 2, 3, 5, 1, 6, 9, 7, 0, 4));
}

TEST(EpochOrderTest, PutsEveryRowEverywhereEquallyOften) {
  constexpr int kRows = 4, kEpochs = 4000;
  int count[kRows][kRows] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    const std::vector<int64_t> order = EpochOrder(kRows, 1, epoch);
    for (int i = 0; i < kRows; ++i) ++count[i][order[i]];
  }
  // Binomial with 4000 trials of 1/4: deviation 27. The seed is fixed, so this passes always or never.
  for (const auto& place : count) {
    for (int times : place) EXPECT_NEAR(times, kEpochs / kRows, 5 * 27);
  }
}

TEST(ShareOfTest, SharesAreDisjointCoverTheBatchAndDifferByAtMostOne) {
  for (int64_t size : {0, 1, 3, 32, 442}) {
    const std::vector<int64_t> batch = EpochOrder(size, 5, 0);
    for (int world_size : {1, 2, 3, 4, 7, 64}) {
      std::vector<int64_t> together;
      for (int rank = 0; rank < world_size; ++rank) {
        const absl::Span<const int64_t> share = ShareOf(batch, rank, world_size);
        EXPECT_GE(share.size(), static_cast<size_t>(size / world_size));
        EXPECT_LE(share.size(), static_cast<size_t>((size + world_size - 1) / world_size));
        together.insert(together.end(), share.begin(), share.end());
      }
      EXPECT_THAT(together, ElementsAreArray(batch)) << size << " rows, " << world_size << " ranks";
    }
  }
}

}  // namespace
}  // namespace cohort
