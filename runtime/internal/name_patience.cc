#include "cohort/runtime/internal/name_patience.h"

#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"
#include "cohort/runtime/rank_info.h"

namespace cohort::internal {
namespace {

constexpr absl::Duration kShort = absl::Seconds(3);
constexpr absl::Duration kOwnName = absl::Seconds(30);

absl::Duration Limit(const RankInfo& info, bool is_host) {
  if (info.local_world_size == info.world_size) return kShort;
  return is_host ? kOwnName : absl::InfiniteDuration();
}

}  // namespace

NamePatience::NamePatience(const RankInfo& info, bool is_host, SteadyTime start)
    : limit_(Limit(info, is_host)), start_(start) {}

NamePatience::Advice NamePatience::NotFound(SteadyTime now) {
  const absl::Duration waited = Between(start_, now);
  if (was_found_) return Advice::kAskAgain;
  if (waited >= limit_) return Advice::kGiveUp;
  if (waited < kShort || was_said_) return Advice::kAskAgain;
  was_said_ = true;
  return Advice::kAskAgainAndSaySo;
}

}  // namespace cohort::internal
