// Two samplers: the one that reads ahead decides what is in a batch, and the loader's own follows it as batches are
// handed out. So the position is right whatever was read and never used.

#include "cohort/trainers/data/batch_loader.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "ATen/core/ivalue.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/trainers/data/distributed_sampler.h"
#include "cohort/trainers/data/prefetcher.h"
#include "cohort/trainers/data/row_source.h"

namespace cohort {
namespace {

absl::StatusOr<std::optional<LoadedBatch>> Read(const RowSource& source, DistributedSampler& sampler,
                                                int64_t items_of_all) {
  if (sampler.is_at_end()) return std::nullopt;
  const std::string where = absl::StrCat("epoch ", sampler.epoch(), ", from item ", sampler.items_done(), " on: ");
  absl::StatusOr<SampledItems> items = sampler.Next(items_of_all);
  absl::StatusOr<RowBatch> rows = items.ok() ? source.Read(items->mine) : items.status();
  if (!rows.ok()) return absl::Status(rows.status().code(), absl::StrCat(where, rows.status().message()));
  return LoadedBatch{*std::move(rows), std::move(items->mine), items->num_of_all};
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchLoader>> BatchLoader::Create(const RowSource& source, DistributedSampler sampler,
                                                                 const BatchLoaderOptions& options) {
  if (options.items_of_all < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a batch of ", options.items_of_all, " rows of all ranks; it must be at least 1"));
  }
  if (options.prefetch < 0 || options.prefetch > kMaxPrefetch) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefetch is ", options.prefetch, "; it must be from 0 to ", kMaxPrefetch));
  }
  const DistributedSamplerOptions& sampled = sampler.options();
  if (sampled.num_items != source.num_rows() || sampled.data_checksum != source.info().checksum) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the sampler is for another data set: num_items=", sampled.num_items, " data_checksum=", sampled.data_checksum,
        "; this one has ", source.num_rows(), " rows and the checksum ", source.info().checksum));
  }
  return absl::WrapUnique(new BatchLoader(source, std::move(sampler), options));
}

absl::StatusOr<std::optional<LoadedBatch>> BatchLoader::Next() {
  if (prefetcher_ == nullptr) {
    prefetcher_ = std::make_unique<Prefetcher<LoadedBatch>>(
        options_.prefetch, [&source = source_, ahead = sampler_, items_of_all = options_.items_of_all]() mutable {
          return Read(source, ahead, items_of_all);
        });
  }
  ABSL_ASSIGN_OR_RETURN(std::optional<LoadedBatch> batch, prefetcher_->Next());
  if (batch.has_value()) {
    ABSL_RETURN_IF_ERROR(sampler_.Skip(batch->num_of_all));
  }
  return batch;
}

absl::Status BatchLoader::SetEpoch(int64_t epoch) {
  ABSL_RETURN_IF_ERROR(sampler_.SetEpoch(epoch));
  prefetcher_.reset();
  return absl::OkStatus();
}

absl::Status BatchLoader::Load(const c10::IValue& state) {
  ABSL_RETURN_IF_ERROR(sampler_.Load(state));
  prefetcher_.reset();
  return absl::OkStatus();
}

}  // namespace cohort
