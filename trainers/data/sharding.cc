#include "cohort/trainers/data/sharding.h"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace cohort {

std::vector<int64_t> EpochOrder(int64_t num_rows, uint64_t seed, int64_t epoch) {
  std::vector<int64_t> order(num_rows);
  std::iota(order.begin(), order.end(), 0);
  // The standard fixes what seed_seq and mt19937_64 do, and leaves std::shuffle to each library: so the shuffle is our
  // own.
  std::seed_seq seeds{seed & 0xffffffff, seed >> 32, static_cast<uint64_t>(epoch) & 0xffffffff,
                      static_cast<uint64_t>(epoch) >> 32};
  std::mt19937_64 random(seeds);
  for (int64_t i = num_rows - 1; i > 0; --i) {
    // The remainder favours small numbers by less than num_rows in 2^64.
    std::swap(order[i], order[random() % static_cast<uint64_t>(i + 1)]);
  }
  return order;
}

absl::Span<const int64_t> ShareOf(absl::Span<const int64_t> batch, int rank, int world_size) {
  const size_t begin = batch.size() * rank / world_size;
  const size_t end = batch.size() * (rank + 1) / world_size;
  return batch.subspan(begin, end - begin);
}

}  // namespace cohort
