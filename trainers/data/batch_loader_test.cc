#include "cohort/trainers/data/batch_loader.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/base/config.h"
#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "cohort/trainers/data/distributed_sampler.h"
#include "cohort/trainers/data/row_source.h"
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
constexpr uint32_t kChecksum = 11;

// Row i is i; some rows cannot be read.
class Numbers : public RowSource {
 public:
  explicit Numbers(int64_t num_rows, int64_t broken_row = -1)
      : RowSource({.name = "numbers", .num_rows = num_rows, .checksum = kChecksum}), broken_row_(broken_row) {}

  int reads() const { return reads_; }

 private:
  absl::Status ReadInto(absl::Span<const int64_t> rows, RowBatch& batch) const override {
    ++reads_;
    for (int64_t i = 0; i < batch.features.size(0); ++i) {
      if (rows[i] == broken_row_) return absl::DataLossError("the disk is broken");
      batch.features[i] = static_cast<double>(rows[i]);
      batch.targets[i] = -static_cast<double>(rows[i]);
    }
    return absl::OkStatus();
  }

  const int64_t broken_row_;
  mutable std::atomic<int> reads_ = 0;
};

DistributedSamplerOptions Unshuffled(int64_t num_items, int num_replicas = 1, int rank = 0) {
  return {
      .num_items = num_items, .num_replicas = num_replicas, .rank = rank, .shuffle = false, .data_checksum = kChecksum};
}

std::unique_ptr<BatchLoader> Make(const RowSource& source, const DistributedSamplerOptions& sampler,
                                  const BatchLoaderOptions& options) {
  absl::StatusOr<DistributedSampler> made = DistributedSampler::Create(sampler);
  ABSL_CHECK_OK(made);
  absl::StatusOr<std::unique_ptr<BatchLoader>> loader = BatchLoader::Create(source, *made, options);
  ABSL_CHECK_OK(loader);
  return *std::move(loader);
}

// The next batch, which is there.
LoadedBatch Next(BatchLoader& loader) {
  absl::StatusOr<std::optional<LoadedBatch>> batch = loader.Next();
  ABSL_CHECK_OK(batch);
  ABSL_CHECK(batch->has_value());
  return **std::move(batch);
}

// The items of the rest of the epoch, batch after batch.
std::vector<std::vector<int64_t>> Rest(BatchLoader& loader) {
  std::vector<std::vector<int64_t>> items;
  while (true) {
    absl::StatusOr<std::optional<LoadedBatch>> batch = loader.Next();
    ABSL_CHECK_OK(batch);
    if (!batch->has_value()) return items;
    items.push_back((*batch)->items);
  }
}

// With and without reading ahead.
class BatchLoaderTest : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Prefetch, BatchLoaderTest, ::testing::Values(0, 1, 2, 5), ::testing::PrintToStringParamName());

TEST_P(BatchLoaderTest, ABatchHasThisRanksRowsOfTheSamplersItems) {
  const Numbers numbers(10);
  const std::unique_ptr<BatchLoader> loader =
      Make(numbers, Unshuffled(10, 2, 1), {.items_of_all = 4, .prefetch = GetParam()});
  const LoadedBatch batch = Next(*loader);
  EXPECT_THAT(batch.items, ElementsAre(1, 3));
  EXPECT_EQ(batch.num_of_all, 4);
  EXPECT_EQ(batch.rows.features[1].item<float>(), 3);
  EXPECT_EQ(batch.rows.targets[1].item<float>(), -3);
  EXPECT_THAT(Rest(*loader), ElementsAre(ElementsAre(5, 7), ElementsAre(9)));
}

TEST_P(BatchLoaderTest, AnEpochEndsUntilTheNextIsBegun) {
  const Numbers numbers(5);
  DistributedSamplerOptions sampler = Unshuffled(5);
  sampler.shuffle = true;
  const std::unique_ptr<BatchLoader> loader = Make(numbers, sampler, {.items_of_all = 2, .prefetch = GetParam()});
  const std::vector<std::vector<int64_t>> first = Rest(*loader);
  EXPECT_THAT(Rest(*loader), IsEmpty());
  EXPECT_TRUE(loader->position().is_at_end());
  ABSL_ASSERT_OK(loader->SetEpoch(1));
  EXPECT_NE(Rest(*loader), first);
  ABSL_ASSERT_OK(loader->SetEpoch(0));
  EXPECT_EQ(Rest(*loader), first);
}

TEST_P(BatchLoaderTest, ThePositionIsThatOfWhatWasHandedOut) {
  const Numbers numbers(100);
  DistributedSamplerOptions sampler = Unshuffled(100, 3, 2);
  sampler.shuffle = true;
  const BatchLoaderOptions options = {.items_of_all = 8, .prefetch = GetParam()};
  const std::unique_ptr<BatchLoader> whole = Make(numbers, sampler, options);
  ABSL_ASSERT_OK(whole->SetEpoch(4));
  EXPECT_EQ(whole->position().items_done(), 0);
  for (int batches = 1; batches <= 5; ++batches) {
    Next(*whole);
    EXPECT_EQ(whole->position().items_done(), 8 * batches);
  }
  const std::unique_ptr<BatchLoader> resumed = Make(numbers, sampler, options);
  Next(*resumed);  // it has read ahead somewhere else
  ABSL_ASSERT_OK(resumed->Load(whole->State()));
  EXPECT_EQ(resumed->position().epoch(), 4);
  EXPECT_EQ(Rest(*resumed), Rest(*whole));
}

TEST_P(BatchLoaderTest, AnErrorComesWithItsBatchAndStays) {
  const Numbers numbers(20, /*broken_row=*/9);
  const std::unique_ptr<BatchLoader> loader =
      Make(numbers, Unshuffled(20), {.items_of_all = 4, .prefetch = GetParam()});
  EXPECT_THAT(Next(*loader).items, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Next(*loader).items, ElementsAre(4, 5, 6, 7));
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(loader->Next(),
                StatusIs(absl::StatusCode::kDataLoss, "epoch 0, from item 8 on: \"numbers\": the disk is broken"));
    EXPECT_EQ(loader->position().items_done(), 8);
  }
  ABSL_ASSERT_OK(loader->SetEpoch(1));
  EXPECT_THAT(Next(*loader).items, ElementsAre(0, 1, 2, 3));
}

TEST_P(BatchLoaderTest, ARankWithoutItemsGetsTensorsOfNoRows) {
  const Numbers numbers(2);
  const std::unique_ptr<BatchLoader> loader =
      Make(numbers, Unshuffled(2, 4, 3), {.items_of_all = 8, .prefetch = GetParam()});
  const LoadedBatch batch = Next(*loader);
  EXPECT_EQ(batch.num_of_all, 2);
  EXPECT_THAT(batch.items, IsEmpty());
  EXPECT_THAT(batch.rows.features.sizes(), ElementsAre(0));
}

TEST_P(BatchLoaderTest, ARefusedPositionChangesNothing) {
  const Numbers numbers(10);
  const std::unique_ptr<BatchLoader> loader =
      Make(numbers, Unshuffled(10), {.items_of_all = 3, .prefetch = GetParam()});
  Next(*loader);
  EXPECT_THAT(loader->SetEpoch(-1), StatusIs(kInvalid, HasSubstr("epoch is -1")));
  EXPECT_THAT(loader->Load(c10::IValue()), StatusIs(kInvalid, HasSubstr("not a dict")));
  EXPECT_THAT(Next(*loader).items, ElementsAre(3, 4, 5));
}

TEST_P(BatchLoaderTest, CanBeDestroyedAtAnyMoment) {
  const Numbers numbers(100);
  for (int batches = 0; batches < 20; ++batches) {
    const std::unique_ptr<BatchLoader> loader =
        Make(numbers, Unshuffled(100), {.items_of_all = 3, .prefetch = GetParam()});
    for (int i = 0; i < batches; ++i) Next(*loader);
  }
}

TEST(BatchLoaderTest, ReadsAtMostAsFarAheadAsItIsTold) {
  const Numbers numbers(100);
  {
    const std::unique_ptr<BatchLoader> loader = Make(numbers, Unshuffled(100), {.items_of_all = 1, .prefetch = 3});
    for (int i = 0; i < 10; ++i) Next(*loader);
  }
  EXPECT_GE(numbers.reads(), 10);
  EXPECT_LE(numbers.reads(), 13);
}

// A sanitizer's allocator ends the program instead.
#if !defined(ABSL_HAVE_ADDRESS_SANITIZER) && !defined(ABSL_HAVE_THREAD_SANITIZER)
// Its rows are larger than any memory.
class Large : public RowSource {
 public:
  Large() : RowSource({.name = "large", .num_rows = 2, .features = {.sizes = {int64_t{1} << 50}}}) {}

 private:
  absl::Status ReadInto(absl::Span<const int64_t>, RowBatch&) const override { return absl::OkStatus(); }
};

TEST_P(BatchLoaderTest, MemoryThatIsNotThereIsAnErrorOfTheBatch) {
  const Large large;
  DistributedSamplerOptions sampler = Unshuffled(2);
  sampler.data_checksum = 0;
  const std::unique_ptr<BatchLoader> loader = Make(large, sampler, {.items_of_all = 1, .prefetch = GetParam()});
  EXPECT_THAT(loader->Next(), StatusIs(absl::StatusCode::kResourceExhausted,
                                       HasSubstr("epoch 0, from item 0 on: \"large\": no memory for 1 rows")));
}
#endif

TEST(BatchLoaderTest, OptionsOutOfRangeAreNamedWithWhatIsAllowed) {
  const Numbers numbers(10);
  const absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(Unshuffled(10));
  ABSL_ASSERT_OK(sampler);
  const auto expect_refused = [&](const BatchLoaderOptions& options, std::string_view why) {
    EXPECT_THAT(BatchLoader::Create(numbers, *sampler, options), StatusIs(kInvalid, HasSubstr(why)));
  };
  expect_refused({}, "a batch of 0 rows of all ranks; it must be at least 1");
  expect_refused({.items_of_all = -4}, "a batch of -4 rows");
  expect_refused({.items_of_all = 4, .prefetch = -1}, "prefetch is -1; it must be from 0 to 1024");
  expect_refused({.items_of_all = 4, .prefetch = 1025}, "prefetch is 1025");
}

TEST(BatchLoaderTest, ASamplerOfAnotherDataSetIsRefused) {
  const Numbers numbers(10);
  const auto create = [&](const DistributedSamplerOptions& options) {
    const absl::StatusOr<DistributedSampler> sampler = DistributedSampler::Create(options);
    ABSL_CHECK_OK(sampler);
    return BatchLoader::Create(numbers, *sampler, {.items_of_all = 2}).status();
  };
  EXPECT_THAT(create(Unshuffled(9)), StatusIs(kInvalid, AllOf(HasSubstr("num_items=9"), HasSubstr("10 rows"))));
  DistributedSamplerOptions other = Unshuffled(10);
  other.data_checksum = 12;
  EXPECT_THAT(create(other), StatusIs(kInvalid, AllOf(HasSubstr("data_checksum=12"), HasSubstr("the checksum 11"))));
  ABSL_EXPECT_OK(create(Unshuffled(10)));
}

}  // namespace
}  // namespace cohort
