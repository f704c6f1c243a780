// File: save_trigger.h
//
// SaveTrigger: when a training loop saves, and when it saves and stops: every so many steps, every so long a time, when
// somebody asks by a signal.
//
//   absl::StatusOr<std::unique_ptr<SaveTrigger>> trigger = SaveTrigger::Create(
//       group.get(),
//       {.every_steps = 1000, .every = absl::Minutes(30), .signals = {SIGUSR2}, .stop_signals = {SIGTERM, SIGUSR1}});
//   ...
//   ABSL_ASSIGN_OR_RETURN(const SaveDecision decision, (*trigger)->Decide(++step));   // after every step
//   if (decision != SaveDecision::kGoOn) { save }
//   if (decision == SaveDecision::kSaveAndStop) { leave the loop, on every rank; end with the exit code 75 }

#ifndef COHORT_CHECKPOINT_SAVE_TRIGGER_H_
#define COHORT_CHECKPOINT_SAVE_TRIGGER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

namespace internal {
class SignalWatch;
}  // namespace internal

// What a training loop does after a step; what is more is greater.
enum class SaveDecision { kGoOn, kSave, kSaveAndStop };

// A save is due if any of these says so; with none of them it never is. Equal on all ranks.
struct SaveTriggerOptions {
  // At the steps that it divides; at least 1.
  std::optional<int64_t> every_steps;
  // Once so long a time is over, by the main rank's steady clock, since Create or since the step after the last save: a
  // save takes nothing from it, however long it was. More than 0.
  std::optional<absl::Duration> every;
  // When one of these has come to the process of any rank: a save, and the run goes on. SIGUSR2 is meant for this. A
  // handler takes the signal's place as long as the trigger lives: before and after that it does what it does by default,
  // and SIGUSR2 then ends the process.
  //
  // Every other signal keeps its meaning. To put SIGTERM, SIGINT or SIGHUP here is to take it away: the job would save,
  // and not end, when it is told to end.
  std::vector<int> signals;
  // When one of these has come to the process of any rank: a save, and the end of the run. SIGTERM, which every scheduler
  // sends, and SIGUSR1, which some send some time before it, are meant for this.
  //
  // The handlers are as above, but once a stop is decided they stay until the process ends, trigger or not: a job that is
  // told twice to stop is not broken into while it saves and leaves. The signal no longer ends the process by itself, so a
  // rank that waits for others in a collective ends when that does.
  std::vector<int> stop_signals;
  // The ranks meet about signals and the clock only after the steps that this divides; at least 1. It is what makes them
  // cheap where steps are short; an answer is late by up to so many steps, and the grace that a scheduler gives between
  // its signal and the end must be longer than that and the save.
  int64_t check_every = 1;
  // What `every` goes by: the time since some moment; for tests. Empty: the machine's steady clock.
  std::function<absl::Duration()> clock;
};

// Not thread-safe. Several may live in one process, also for the same signal: each sees it.
class SaveTrigger {
 public:
  // Local. `group` must outlive the trigger.
  //
  // Errors: InvalidArgument: `every_steps` or `check_every` below 1, `every` not above 0, or a signal that is none, cannot
  // be caught (SIGKILL, SIGSTOP), cannot be gone on after (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), or is among both
  // `signals` and `stop_signals`; names the option, its value and what is allowed.
  static absl::StatusOr<std::unique_ptr<SaveTrigger>> Create(ProcessGroup* absl_nonnull group,
                                                             SaveTriggerOptions options);

  SaveTrigger(const SaveTrigger&) = delete;
  SaveTrigger& operator=(const SaveTrigger&) = delete;
  // Local. Puts the signals back to what was done at them before; once a stop is decided, not `stop_signals`.
  ~SaveTrigger();

  // What is due after `step`, counted from 1: the same answer on every rank. Whoever is told to save and does, or fails
  // to, calls again after the next step. Asked for by several signals, or by signals and the clock, it is still one save.
  // A stop, once decided, is the answer to every later call as well.
  //
  // Without `every`, `signals` and `stop_signals` it is local, and so it is after the steps that `check_every` does not
  // divide. Otherwise it is collective: one rendezvous; a second if a save is wanted and there are `stop_signals`. If
  // `every_steps` divides the step, which every rank knows, the ranks meet only about a stop.
  //
  // Errors: those of ProcessGroup::Agree if a rank has failed, or asks after another step.
  absl::StatusOr<SaveDecision> Decide(int64_t step);

 private:
  SaveTrigger(ProcessGroup* absl_nonnull group, SaveTriggerOptions options);

  // Local. Whether this rank wants a save, as far as it knows.
  bool WantsSave();
  // Collective. What the lowest rank wants that wants anything.
  absl::StatusOr<SaveDecision> Ask(std::string_view name, SaveDecision mine);
  // Local. What has been wanted so far is done.
  void MarkAnswered(SaveDecision decision);

  ProcessGroup* absl_nonnull const group_;
  const SaveTriggerOptions options_;
  std::vector<std::unique_ptr<internal::SignalWatch>> watches_, stop_watches_;
  // When `every` began to run; nullopt: it does at the next call.
  std::optional<absl::Duration> since_;
  bool has_stopped_ = false;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_SAVE_TRIGGER_H_
