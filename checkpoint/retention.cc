#include "cohort/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/checkpoint/checkpoint_info.h"
#include "cohort/checkpoint/internal/checkpoint_order.h"
#include "cohort/checkpoint/internal/manifest.h"

namespace cohort {
namespace {

absl::Status CheckAtLeastOne(std::string_view field, int64_t value) {
  if (value >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("retention: ", field, " is ", value, "; it must be at least 1"));
}

// What is kept, and what is needed to find out. "Places" are those in `checkpoints`.
class Planner {
 public:
  explicit Planner(absl::Span<const CheckpointInfo> checkpoints)
      : checkpoints_(checkpoints), newest_first_(checkpoints.size()), keeps_(checkpoints.size()) {
    std::iota(newest_first_.begin(), newest_first_.end(), size_t{0});
    std::sort(newest_first_.begin(), newest_first_.end(),
              [&](size_t a, size_t b) { return internal::IsNewer(checkpoints_[a], checkpoints_[b]); });
  }

  void KeepPinned() {
    for (size_t i = 0; i < checkpoints_.size(); ++i) {
      if (checkpoints_[i].pinned) keeps_[i] = true;
    }
  }

  void KeepNewest(int64_t count) { KeepFirst(newest_first_, count); }

  void KeepOneEverySteps(int64_t steps) {
    std::map<int64_t, size_t> lowest;  // by interval
    for (const size_t i : newest_first_) {
      const auto [found, is_new] = lowest.try_emplace(checkpoints_[i].step / steps, i);
      if (!is_new && checkpoints_[i].step < checkpoints_[found->second].step) found->second = i;
    }
    for (const auto& [interval, i] : lowest) keeps_[i] = true;
  }

  void KeepOneEvery(absl::Duration time) {
    std::map<absl::Duration, size_t> first;  // by the interval's beginning
    for (const size_t i : newest_first_) {
      first.insert_or_assign(absl::Floor(checkpoints_[i].saved - absl::UnixEpoch(), time), i);
    }
    for (const auto& [begin, i] : first) keeps_[i] = true;
  }

  void KeepBestOnes(const KeepBest& best) {
    // The metrics are looked up once.
    std::vector<std::pair<int, double>> ranks(checkpoints_.size());
    for (size_t i = 0; i < checkpoints_.size(); ++i) ranks[i] = Rank(checkpoints_[i], best);
    std::vector<size_t> best_first = newest_first_;
    std::stable_sort(best_first.begin(), best_first.end(), [&](size_t a, size_t b) { return ranks[a] < ranks[b]; });
    KeepFirst(best_first, best.count);
  }

  std::vector<size_t> NotKept() const {
    std::vector<size_t> places(newest_first_.rbegin(), newest_first_.rend());
    std::erase_if(places, [&](size_t i) { return keeps_[i]; });
    return places;
  }

 private:
  void KeepFirst(absl::Span<const size_t> places, int64_t count) {
    if (static_cast<uint64_t>(count) < places.size()) places = places.first(count);
    for (const size_t i : places) keeps_[i] = true;
  }

  // The less, the better.
  static std::pair<int, double> Rank(const CheckpointInfo& checkpoint, const KeepBest& best) {
    const auto found = checkpoint.metrics.find(best.metric);
    if (found == checkpoint.metrics.end()) return {2, 0};
    const double value = found->second;
    if (std::isnan(value)) return {1, 0};
    return {0, best.order == KeepBest::Order::kLeast ? value : -value};
  }

  const absl::Span<const CheckpointInfo> checkpoints_;
  std::vector<size_t> newest_first_;
  std::vector<bool> keeps_;
};

}  // namespace

absl::Status CheckRetentionPolicy(const RetentionPolicy& policy) {
  if (policy.newest.has_value()) {
    ABSL_RETURN_IF_ERROR(CheckAtLeastOne("newest", *policy.newest));
  }
  if (policy.one_every_steps.has_value()) {
    ABSL_RETURN_IF_ERROR(CheckAtLeastOne("one_every_steps", *policy.one_every_steps));
  }
  if (policy.one_every.has_value() &&
      (*policy.one_every <= absl::ZeroDuration() || *policy.one_every == absl::InfiniteDuration())) {
    return absl::InvalidArgumentError(absl::StrCat("retention: one_every is ", absl::FormatDuration(*policy.one_every),
                                                   "; it must be more than 0 and finite"));
  }
  for (const KeepBest& best : policy.best) {
    if (const absl::Status valid = internal::CheckMetricName(best.metric); !valid.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("retention: best: ", valid.message()));
    }
    ABSL_RETURN_IF_ERROR(CheckAtLeastOne(absl::StrCat("best: the count for ", best.metric), best.count));
  }
  return absl::OkStatus();
}

std::vector<size_t> PlanRetention(absl::Span<const CheckpointInfo> checkpoints, const RetentionPolicy& policy) {
  if (!policy.newest.has_value()) return {};
  Planner planner(checkpoints);
  planner.KeepPinned();
  planner.KeepNewest(*policy.newest);
  if (policy.one_every_steps.has_value()) planner.KeepOneEverySteps(*policy.one_every_steps);
  if (policy.one_every.has_value()) planner.KeepOneEvery(*policy.one_every);
  for (const KeepBest& best : policy.best) planner.KeepBestOnes(best);
  return planner.NotKept();
}

}  // namespace cohort
