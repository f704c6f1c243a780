// A wish travels as the error of an Agree: that is one rendezvous, and the group stays usable after it. No failure of a
// group has its code and its text.
//
// Agree returns the lowest rank's wish. If that is for a save, a higher rank's may be for a stop: so they are asked about
// a stop alone, in a rendezvous of its own. It happens once a save.

#include "cohort/checkpoint/save_trigger.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/internal/signal_watch.h"
#include "cohort/runtime/process_group.h"

namespace cohort {
namespace {

constexpr std::string_view kSaveWish = "cohort::SaveTrigger wants a save";
constexpr std::string_view kStopWish = "cohort::SaveTrigger wants to stop";

absl::Status WishFor(SaveDecision decision) {
  if (decision == SaveDecision::kGoOn) return absl::OkStatus();
  return absl::AbortedError(decision == SaveDecision::kSave ? kSaveWish : kStopWish);
}

// What an Agree was told; nullopt if it is a failure. "rank K: " before a wish is Agree's, and so is what it says of other
// ranks behind it.
std::optional<SaveDecision> WishIn(const absl::Status& agreed) {
  if (agreed.ok()) return SaveDecision::kGoOn;
  std::string_view text = agreed.message();
  if (!absl::IsAborted(agreed) || !absl::ConsumePrefix(&text, "rank ")) return std::nullopt;
  text.remove_prefix(std::min(text.find_first_not_of("0123456789"), text.size()));
  if (!absl::ConsumePrefix(&text, ": ")) return std::nullopt;
  if (absl::StartsWith(text, kStopWish)) return SaveDecision::kSaveAndStop;
  if (absl::StartsWith(text, kSaveWish)) return SaveDecision::kSave;
  return std::nullopt;
}

absl::Status CheckOptions(const SaveTriggerOptions& options) {
  for (const auto& [name, value] :
       {std::pair("every_steps", options.every_steps.value_or(1)), std::pair("check_every", options.check_every)}) {
    if (value < 1) return absl::InvalidArgumentError(absl::StrCat(name, "=", value, ": must be at least 1"));
  }
  if (options.every.has_value() && *options.every <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(
        absl::StrCat("every=", absl::FormatDuration(*options.every), ": must be more than 0"));
  }
  for (const int signal : options.signals) {
    if (std::count(options.stop_signals.begin(), options.stop_signals.end(), signal) == 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("signals=", signal, ": is in stop_signals too; a signal is for one of them"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<internal::SignalWatch>>> Watch(const std::vector<int>& signals,
                                                                          std::string_view option) {
  std::vector<std::unique_ptr<internal::SignalWatch>> watches;
  for (const int signal : signals) {
    ABSL_ASSIGN_OR_RETURN(watches.emplace_back(), internal::SignalWatch::Start(signal, option));
  }
  return watches;
}

bool LookAtAll(const std::vector<std::unique_ptr<internal::SignalWatch>>& watches) {
  bool has_come = false;
  for (const auto& watch : watches) has_come |= watch->Look();
  return has_come;
}

}  // namespace

SaveTrigger::SaveTrigger(ProcessGroup* absl_nonnull group, SaveTriggerOptions options)
    : group_(group), options_(std::move(options)) {}

SaveTrigger::~SaveTrigger() {
  if (!has_stopped_) return;
  for (const auto& watch : stop_watches_) watch->LeaveInPlace();
}

absl::StatusOr<std::unique_ptr<SaveTrigger>> SaveTrigger::Create(ProcessGroup* absl_nonnull group,
                                                                 SaveTriggerOptions options) {
  ABSL_RETURN_IF_ERROR(CheckOptions(options));
  if (!options.clock) {
    options.clock = [] { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); };
  }
  auto trigger = absl::WrapUnique(new SaveTrigger(group, std::move(options)));
  ABSL_ASSIGN_OR_RETURN(trigger->watches_, Watch(trigger->options_.signals, "signals"));
  ABSL_ASSIGN_OR_RETURN(trigger->stop_watches_, Watch(trigger->options_.stop_signals, "stop_signals"));
  trigger->since_ = trigger->options_.clock();
  return trigger;
}

absl::StatusOr<SaveDecision> SaveTrigger::Decide(int64_t step) {
  if (has_stopped_) return SaveDecision::kSaveAndStop;
  // Looked at after every step, so that what came before a save is done by it.
  const bool wants_save = WantsSave();
  const bool wants_stop = LookAtAll(stop_watches_);
  const bool is_due = options_.every_steps.has_value() && step > 0 && step % *options_.every_steps == 0;
  SaveDecision decision = is_due ? SaveDecision::kSave : SaveDecision::kGoOn;
  const bool is_check = step % options_.check_every == 0;
  if (is_check && !is_due && (options_.every.has_value() || !watches_.empty() || !stop_watches_.empty())) {
    const SaveDecision mine = wants_save ? SaveDecision::kSave : SaveDecision::kGoOn;
    ABSL_ASSIGN_OR_RETURN(decision,
                          Ask(absl::StrCat("save after step ", step), wants_stop ? SaveDecision::kSaveAndStop : mine));
  }
  if (is_check && decision == SaveDecision::kSave && !stop_watches_.empty()) {
    ABSL_ASSIGN_OR_RETURN(const SaveDecision stop, Ask(absl::StrCat("stop after step ", step),
                                                       wants_stop ? SaveDecision::kSaveAndStop : SaveDecision::kGoOn));
    decision = std::max(decision, stop);
  }
  MarkAnswered(decision);
  return decision;
}

absl::StatusOr<SaveDecision> SaveTrigger::Ask(std::string_view name, SaveDecision mine) {
  const absl::Status agreed = group_->Agree(name, WishFor(mine));
  const std::optional<SaveDecision> wish = WishIn(agreed);
  if (!wish.has_value()) return agreed;
  return *wish;
}

bool SaveTrigger::WantsSave() {
  bool wants = LookAtAll(watches_);
  if (group_->is_main() && options_.every.has_value()) {
    const absl::Duration now = options_.clock();
    if (!since_.has_value()) since_ = now;
    wants |= now - *since_ >= *options_.every;
  }
  return wants;
}

void SaveTrigger::MarkAnswered(SaveDecision decision) {
  has_stopped_ = decision == SaveDecision::kSaveAndStop;
  if (decision == SaveDecision::kGoOn) return;
  for (const auto& watch : watches_) watch->Forget();
  since_.reset();
}

}  // namespace cohort
