// File: distributed_sampler.h
//
// DistributedSampler: which rank uses which item of a data set, and when. The order, and each rank's part of it, are
// those of Python's torch.utils.data.DistributedSampler.
//
//   ABSL_ASSIGN_OR_RETURN(DistributedSampler sampler, DistributedSampler::Create({.num_items = rows,
//       .num_replicas = group.world_size(), .rank = group.rank(), .seed = 7}));
//   for (int64_t epoch = 0; epoch < 10; ++epoch) {
//     ABSL_RETURN_IF_ERROR(sampler.SetEpoch(epoch));
//     while (!sampler.is_at_end()) {
//       ABSL_ASSIGN_OR_RETURN(const SampledItems step, sampler.Next(/*items_of_all=*/64));
//       ... use step.mine
//     }
//   }

#ifndef COHORT_TRAINERS_DATA_DISTRIBUTED_SAMPLER_H_
#define COHORT_TRAINERS_DATA_DISTRIBUTED_SAMPLER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/third_party/libtorch/string_abi.h"

namespace cohort {

// What becomes of the end of an epoch if the ranks do not divide the items.
enum class SamplerTail {
  kUneven,  // every item is used exactly once; of an epoch, ranks have numbers of items that differ by at most one
  kPad,     // Python's default: the epoch's first items are used again, until all ranks have the same number
  kDrop,    // Python's drop_last: the last items are left out, until all ranks have the same number; perhaps none
};

struct DistributedSamplerOptions {
  int64_t num_items = 0;  // of the data set, 1 to 2^53; items are the numbers below it
  int num_replicas = 1;   // ranks
  int rank = 0;
  bool shuffle = true;  // otherwise every epoch is 0, 1, 2, ...
  uint64_t seed = 0;    // a negative seed of Python is the number with the same bits
  SamplerTail tail = SamplerTail::kUneven;
  uint32_t data_checksum = 0;  // tells data sets apart when a position is restored
};

// What a step uses.
struct SampledItems {
  std::vector<int64_t> mine;  // this rank's items; may be empty
  int64_t num_of_all = 0;     // how many items the ranks have together, at least 1
};

// An epoch is a sequence of positions. At position p stands item p of at::randperm(num_items), drawn from a CPU
// generator that is seeded with seed + epoch (whose lower 32 bits count); with kPad the sequence begins anew behind its
// end. Position p is rank p % num_replicas's.
//
// A step takes the positions from items_done() on. So which items a step uses does not depend on the number of ranks
// (but for what the tail pads or drops), and a position means the same for every number of ranks.
//
// Everything is local: ranks with equal options stay together without talking. Not for several threads at once; a copy
// goes on by itself. In memory: 8 bytes an item, if they are shuffled.
class DistributedSampler {
 public:
  // At the beginning of epoch 0. Errors: InvalidArgument if an option is out of range (its name, value, and what is
  // allowed).
  static absl::StatusOr<DistributedSampler> Create(const DistributedSamplerOptions& options);

  // The next `items_of_all` items of the epoch, or as many as are left, and this rank's among them: they differ by at
  // most one from the others'.
  //
  // Errors:
  //   InvalidArgument      items_of_all is below 1
  //   OutOfRange           the epoch is at its end
  //   ResourceExhausted    no memory for the order
  absl::StatusOr<SampledItems> Next(int64_t items_of_all);

  // The same without saying which items those are; needs no memory. Errors: as of Next.
  absl::Status Skip(int64_t items_of_all);

  // Goes to the beginning of an epoch, as Python's set_epoch. Errors: InvalidArgument if it is not from 0 to 2^53.
  absl::Status SetEpoch(int64_t epoch);

  int64_t epoch() const { return epoch_; }
  int64_t items_done() const { return items_done_; }  // of this epoch, by all ranks together
  int64_t items_in_epoch() const;                     // for all ranks together, padding included
  bool is_at_end() const { return items_done_ >= items_in_epoch(); }
  const DistributedSamplerOptions& options() const { return options_; }

  // The position, for a state file; the same on all ranks: a dict of num_items, data_checksum, seed (in digits),
  // shuffle, tail ("uneven", "pad" or "drop"), num_replicas, epoch and items_done.
  c10::IValue State() const;

  // Goes to a position that State() made, for any number of ranks: what all ranks together have used they do not use
  // again, and the rest of the epoch is shared by those that are there now. If that number has another tail, so has the
  // epoch; but one that was at its end stays at its end.
  //
  // Errors:
  //   InvalidArgument    no such dict, or numbers that no sampler has (says what is wrong); another num_items or
  //                      data_checksum; in the midst of an epoch, another seed, shuffle or tail (both values). Nothing
  //                      is changed.
  absl::Status Load(const c10::IValue& state);

 private:
  explicit DistributedSampler(const DistributedSamplerOptions& options) : options_(options) {}

  absl::Status MakeOrder();

  DistributedSamplerOptions options_;
  int64_t epoch_ = 0, items_done_ = 0;
  std::vector<int64_t> order_;  // of the items in this epoch; empty until it is needed, and if they are not shuffled
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_DISTRIBUTED_SAMPLER_H_
