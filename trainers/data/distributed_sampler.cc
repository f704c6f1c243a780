// The order is Python's because the same kernel makes it from the same generator. It is made when an epoch's first
// items are asked for, so that a loader which only passes a position on never makes one.

#include "cohort/trainers/data/distributed_sampler.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/CPUGeneratorImpl.h"
#include "ATen/core/Tensor.h"
#include "ATen/core/ivalue.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/randperm.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/internal/quoted.h"
#include "cohort/checkpoint/internal/value_fields.h"
#include "cohort/runtime/torch_status.h"

namespace cohort {
namespace {

using internal::Field;
using internal::Quoted;

constexpr int64_t kMax = int64_t{1} << 53;  // sums and roundings stay far from 2^63
constexpr std::string_view kWhat = "the sampler's state";

std::string_view NameOf(SamplerTail tail) {
  switch (tail) {
    case SamplerTail::kUneven:
      return "uneven";
    case SamplerTail::kPad:
      return "pad";
    case SamplerTail::kDrop:
      return "drop";
  }
  return "";
}

absl::Status CheckRange(std::string_view what, std::string_view name, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": ", name, " is ", value, "; it must be from ", least, " to ", most));
}

int64_t ItemsInEpoch(int64_t num_items, int64_t num_replicas, SamplerTail tail) {
  const int64_t rest = num_items % num_replicas;
  if (rest == 0 || tail == SamplerTail::kUneven) return num_items;
  return tail == SamplerTail::kDrop ? num_items - rest : num_items - rest + num_replicas;
}

// What stands in a state.
struct Saved {
  int64_t num_items = 0, data_checksum = 0;
  std::string seed;
  bool shuffle = false;
  std::string tail;
  int64_t num_replicas = 0, epoch = 0, items_done = 0;

  std::vector<Field> Fields() {
    return {
        {"num_items", &num_items}, {"data_checksum", &data_checksum}, {"seed", &seed},   {"shuffle", &shuffle},
        {"tail", &tail},           {"num_replicas", &num_replicas},   {"epoch", &epoch}, {"items_done", &items_done}};
  }
};

Saved SavedOf(const DistributedSamplerOptions& options, int64_t epoch, int64_t items_done) {
  return {.num_items = options.num_items,
          .data_checksum = options.data_checksum,
          .seed = absl::StrCat(options.seed),
          .shuffle = options.shuffle,
          .tail = std::string(NameOf(options.tail)),
          .num_replicas = options.num_replicas,
          .epoch = epoch,
          .items_done = items_done};
}

// How many items an epoch had for the ranks that saved. Errors: what no sampler saves.
absl::StatusOr<int64_t> CheckSaved(const Saved& saved) {
  ABSL_RETURN_IF_ERROR(CheckRange(kWhat, "num_items", saved.num_items, 1, kMax));
  ABSL_RETURN_IF_ERROR(
      CheckRange(kWhat, "data_checksum", saved.data_checksum, 0, std::numeric_limits<uint32_t>::max()));
  ABSL_RETURN_IF_ERROR(CheckRange(kWhat, "num_replicas", saved.num_replicas, 1, std::numeric_limits<int>::max()));
  ABSL_RETURN_IF_ERROR(CheckRange(kWhat, "epoch", saved.epoch, 0, kMax));
  uint64_t seed;
  if (!absl::SimpleAtoi(saved.seed, &seed) || absl::StrCat(seed) != saved.seed) {
    return absl::InvalidArgumentError(
        absl::StrCat(kWhat, ": seed is ", Quoted(saved.seed), "; it must be a number from 0 to 2^64 - 1, in digits"));
  }
  for (const SamplerTail tail : {SamplerTail::kUneven, SamplerTail::kPad, SamplerTail::kDrop}) {
    if (saved.tail != NameOf(tail)) continue;
    const int64_t items = ItemsInEpoch(saved.num_items, saved.num_replicas, tail);
    ABSL_RETURN_IF_ERROR(CheckRange(kWhat, "items_done", saved.items_done, 0, items));
    return items;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(kWhat, ": tail is ", Quoted(saved.tail), "; it must be \"uneven\", \"pad\" or \"drop\""));
}

// Adds a setting to `before` and `after` if it is not what it was.
template <typename Value>
void Compare(std::string_view name, const Value& saved, const Value& now, std::string& before, std::string& after) {
  if (saved == now) return;
  absl::StrAppend(&before, " ", name, "=", saved);
  absl::StrAppend(&after, " ", name, "=", now);
}

absl::Status CheckSame(const Saved& saved, const Saved& now, bool is_within_epoch) {
  std::string before, after;
  Compare("num_items", saved.num_items, now.num_items, before, after);
  Compare("data_checksum", saved.data_checksum, now.data_checksum, before, after);
  std::string_view reason = "a position in one data set means nothing in another one";
  if (before.empty() && is_within_epoch) {
    Compare("seed", saved.seed, now.seed, before, after);
    Compare("shuffle", saved.shuffle ? "true" : "false", now.shuffle ? "true" : "false", before, after);
    Compare("tail", saved.tail, now.tail, before, after);
    reason = "the epoch that was begun is to be finished in its own order";
  }
  if (before.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kWhat, ": saved with", before, ", after ", saved.items_done,
                                                 " items of epoch ", saved.epoch, "; now", after, ": ", reason));
}

}  // namespace

absl::StatusOr<DistributedSampler> DistributedSampler::Create(const DistributedSamplerOptions& options) {
  constexpr std::string_view kOptions = "the sampler's options";
  ABSL_RETURN_IF_ERROR(CheckRange(kOptions, "num_items", options.num_items, 1, kMax));
  ABSL_RETURN_IF_ERROR(CheckRange(kOptions, "num_replicas", options.num_replicas, 1, std::numeric_limits<int>::max()));
  ABSL_RETURN_IF_ERROR(CheckRange(kOptions, "rank", options.rank, 0, options.num_replicas - 1));
  if (NameOf(options.tail).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kOptions, ": tail is ", static_cast<int>(options.tail), "; it must be kUneven, kPad or kDrop"));
  }
  return DistributedSampler(options);
}

int64_t DistributedSampler::items_in_epoch() const {
  return ItemsInEpoch(options_.num_items, options_.num_replicas, options_.tail);
}

absl::Status DistributedSampler::SetEpoch(int64_t epoch) {
  ABSL_RETURN_IF_ERROR(CheckRange("the sampler", "epoch", epoch, 0, kMax));
  if (epoch != epoch_) order_.clear();
  epoch_ = epoch;
  items_done_ = 0;
  return absl::OkStatus();
}

absl::Status DistributedSampler::MakeOrder() {
  return InvokeTorch([&] {
    std::vector<int64_t> order(options_.num_items);
    const at::Generator random =
        at::make_generator<at::CPUGeneratorImpl>(options_.seed + static_cast<uint64_t>(epoch_));
    at::Tensor values = at::from_blob(order.data(), {options_.num_items}, at::kLong);
    at::randperm_out(values, options_.num_items, random);
    order_ = std::move(order);
  });
}

absl::Status DistributedSampler::Skip(int64_t items_of_all) {
  if (items_of_all < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a step of ", items_of_all, " items of all ranks; it must be at least 1"));
  }
  if (is_at_end()) {
    return absl::OutOfRangeError(
        absl::StrCat("epoch ", epoch_, " is at its end: all of its ", items_in_epoch(), " items are used"));
  }
  items_done_ += std::min(items_of_all, items_in_epoch() - items_done_);
  return absl::OkStatus();
}

absl::StatusOr<SampledItems> DistributedSampler::Next(int64_t items_of_all) {
  if (options_.shuffle && order_.empty() && items_of_all > 0 && !is_at_end()) {
    ABSL_RETURN_IF_ERROR(MakeOrder());
  }
  const int64_t begin = items_done_, replicas = options_.num_replicas;
  ABSL_RETURN_IF_ERROR(Skip(items_of_all));
  SampledItems items = {.num_of_all = items_done_ - begin};
  const int64_t first = begin + (options_.rank - begin % replicas + replicas) % replicas;
  for (int64_t position = first; position < items_done_; position += replicas) {
    const int64_t place = position % options_.num_items;  // beyond the end when it is padded
    items.mine.push_back(options_.shuffle ? order_[place] : place);
  }
  return items;
}

c10::IValue DistributedSampler::State() const {
  Saved saved = SavedOf(options_, epoch_, items_done_);
  c10::impl::GenericDict dict = internal::NewDict();
  internal::PutFields(saved.Fields(), dict);
  return c10::IValue(std::move(dict));
}

absl::Status DistributedSampler::Load(const c10::IValue& state) {
  Saved saved;
  ABSL_ASSIGN_OR_RETURN(const c10::impl::GenericDict dict, internal::AsDict(state, kWhat));
  ABSL_RETURN_IF_ERROR(internal::ReadFields(dict, saved.Fields(), kWhat));
  ABSL_ASSIGN_OR_RETURN(const int64_t saved_items_in_epoch, CheckSaved(saved));
  const bool was_at_end = saved.items_done == saved_items_in_epoch;
  ABSL_RETURN_IF_ERROR(CheckSame(saved, SavedOf(options_, 0, 0), saved.items_done > 0 && !was_at_end));
  ABSL_RETURN_IF_ERROR(SetEpoch(saved.epoch));
  // Where fewer items are left in, what is beyond them is the end.
  items_done_ = was_at_end ? items_in_epoch() : std::min(saved.items_done, items_in_epoch());
  return absl::OkStatus();
}

}  // namespace cohort
