// A wish travels as the error of an Agree: that is one rendezvous, and the group stays usable after it. No failure of a
// group has its code and its text.

#include "cohort/checkpoint/save_trigger.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/base/nullability.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/internal/signal_watch.h"
#include "cohort/runtime/process_group.h"

namespace cohort {
namespace {

constexpr std::string_view kWish = "cohort::SaveTrigger wants a save";

absl::Status Wish() { return absl::AbortedError(kWish); }

// "rank K: " before it is Agree's, and so is what it says of other ranks behind it.
bool IsWish(const absl::Status& status) {
  return absl::IsAborted(status) && absl::StartsWith(status.message(), "rank ") &&
         absl::StrContains(status.message(), absl::StrCat(": ", kWish));
}

}  // namespace

SaveTrigger::SaveTrigger(ProcessGroup* absl_nonnull group, SaveTriggerOptions options)
    : group_(group), options_(std::move(options)) {}

SaveTrigger::~SaveTrigger() = default;

absl::StatusOr<std::unique_ptr<SaveTrigger>> SaveTrigger::Create(ProcessGroup* absl_nonnull group,
                                                                 SaveTriggerOptions options) {
  if (options.every_steps.has_value() && *options.every_steps < 1) {
    return absl::InvalidArgumentError(absl::StrCat("every_steps=", *options.every_steps, ": must be at least 1"));
  }
  if (options.every.has_value() && *options.every <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("every=", absl::FormatDuration(*options.every), ": must be more than 0"));
  }
  if (!options.clock) {
    options.clock = [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
  }
  auto trigger = absl::WrapUnique(new SaveTrigger(group, std::move(options)));
  for (const int signal : trigger->options_.signals) {
    ABSL_ASSIGN_OR_RETURN(std::unique_ptr<internal::SignalWatch> watch, internal::SignalWatch::Start(signal));
    trigger->watches_.push_back(std::move(watch));
  }
  trigger->since_ = trigger->options_.clock();
  return trigger;
}

absl::StatusOr<bool> SaveTrigger::ShouldSave(int64_t step) {
  const bool wants = WantsSave();
  bool due = options_.every_steps.has_value() && step > 0 && step % *options_.every_steps == 0;
  if (!due && (options_.every.has_value() || !options_.signals.empty())) {
    const absl::Status agreed =
        group_->Agree(absl::StrCat("save after step ", step), wants ? Wish() : absl::OkStatus());
    due = IsWish(agreed);
    if (!due && !agreed.ok()) return agreed;
  }
  if (due) MarkAnswered();
  return due;
}

bool SaveTrigger::WantsSave() {
  bool wants = false;
  for (const auto& watch : watches_) wants |= watch->Look();
  if (group_->is_main() && options_.every.has_value()) {
    const absl::Duration now = options_.clock();
    if (!since_.has_value()) since_ = now;
    wants |= now - *since_ >= *options_.every;
  }
  return wants;
}

void SaveTrigger::MarkAnswered() {
  for (const auto& watch : watches_) watch->Forget();
  since_.reset();
}

}  // namespace cohort
