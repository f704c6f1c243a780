// File: batch_loader.h
//
// BatchLoader: this rank's rows of each step, read ahead, and a position that can be saved.

#ifndef COHORT_TRAINERS_DATA_BATCH_LOADER_H_
#define COHORT_TRAINERS_DATA_BATCH_LOADER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ATen/core/ivalue.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cohort/third_party/libtorch/string_abi.h"
#include "cohort/trainers/data/distributed_sampler.h"
#include "cohort/trainers/data/prefetcher.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {

struct BatchLoaderOptions {
  int64_t items_of_all = 0;  // in a batch, of all ranks together; at least 1
  int prefetch = 2;          // batches that are read ahead, 0 to kMaxPrefetch; 0: each is read when it is asked for
};

// More batches than that only take memory.
inline constexpr int kMaxPrefetch = 1024;

struct LoadedBatch {
  RowBatch rows;               // this rank's; of no rows if there are fewer items than ranks
  std::vector<int64_t> items;  // which those are
  int64_t num_of_all = 0;      // rows that the ranks have together, at least 1
};

// Everything is local. Not for several threads at once; the source may be used meanwhile.
class BatchLoader {
 public:
  // `source` must outlive the object. Item i of the sampler is row i of it.
  //
  // Errors:
  //   InvalidArgument    an option is out of range; the sampler has another number of items than the source has rows,
  //                      or another data_checksum
  static absl::StatusOr<std::unique_ptr<BatchLoader>> Create(const RowSource& source, DistributedSampler sampler,
                                                             const BatchLoaderOptions& options);

  // The next batch of the epoch; nullopt at its end, until there is another position. Blocks until it is read.
  //
  // Errors: those of RowSource::Read and of DistributedSampler::Next, with the epoch and the place in it, when all
  // batches before are handed out; then again and again until there is another position. The position is before that
  // batch.
  absl::StatusOr<std::optional<LoadedBatch>> Next();

  // The position: after the batches that Next has returned, whatever was read ahead.
  const DistributedSampler& position() const { return sampler_; }
  c10::IValue State() const { return sampler_.State(); }

  // Another position, as DistributedSampler says; waits for the batch that is being read. Errors: its own; then nothing
  // is changed.
  absl::Status SetEpoch(int64_t epoch);
  absl::Status Load(const c10::IValue& state);

 private:
  BatchLoader(const RowSource& source, DistributedSampler sampler, const BatchLoaderOptions& options)
      : source_(source), options_(options), sampler_(std::move(sampler)) {}

  const RowSource& source_;
  const BatchLoaderOptions options_;
  DistributedSampler sampler_;                           // makes no order: that one which reads ahead does
  std::unique_ptr<Prefetcher<LoadedBatch>> prefetcher_;  // null until it is needed
};

}  // namespace cohort

#endif  // COHORT_TRAINERS_DATA_BATCH_LOADER_H_
