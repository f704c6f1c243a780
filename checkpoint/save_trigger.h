// File: save_trigger.h
//
// SaveTrigger: when a training loop saves: every so many steps, every so long a time, when somebody asks by a signal.
//
//   absl::StatusOr<std::unique_ptr<SaveTrigger>> trigger =
//       SaveTrigger::Create(group.get(), {.every_steps = 1000, .every = absl::Minutes(30), .signals = {SIGUSR1}});
//   ...
//   ABSL_ASSIGN_OR_RETURN(const bool save, (*trigger)->ShouldSave(++step));   // after every step

#ifndef COHORT_CHECKPOINT_SAVE_TRIGGER_H_
#define COHORT_CHECKPOINT_SAVE_TRIGGER_H_

#if __cplusplus < 202002L
#error "cohort needs C++20: build with --cxxopt=-std=c++20"
#endif

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/nullability.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/runtime/process_group.h"

namespace cohort {

namespace internal {
class SignalWatch;
}  // namespace internal

// A save is due if any of these says so; with none of them it never is. Equal on all ranks.
struct SaveTriggerOptions {
  // At the steps that it divides; at least 1.
  std::optional<int64_t> every_steps;
  // Once so long a time is over, by the main rank's steady clock, since Create or since the step after the last save: a
  // save takes nothing from it, however long it was. More than 0.
  std::optional<absl::Duration> every;
  // When one of these has come to the process of any rank; SIGUSR1 is meant for this, and /bin/kill and schedulers can
  // send it. A handler takes its place as long as the trigger lives: before and after that the signal does what it does
  // by default, and SIGUSR1 then ends the process.
  //
  // Every other signal keeps its meaning. To put SIGTERM, SIGINT or SIGHUP here is to take it away: the job would save,
  // and not end, when it is told to end.
  std::vector<int> signals;
  // What `every` goes by: the time since some moment; for tests. Empty: the machine's steady clock.
  std::function<absl::Duration()> clock;
};

// Not thread-safe. Several may live in one process, also for the same signal: each sees it.
class SaveTrigger {
 public:
  // Local. `group` must outlive the trigger.
  //
  // Errors: InvalidArgument: `every_steps` below 1, `every` not above 0, or a signal that is none, cannot be caught
  // (SIGKILL, SIGSTOP), or cannot be gone on after (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT); names the option, its
  // value and what is allowed.
  static absl::StatusOr<std::unique_ptr<SaveTrigger>> Create(ProcessGroup* absl_nonnull group,
                                                             SaveTriggerOptions options);

  SaveTrigger(const SaveTrigger&) = delete;
  SaveTrigger& operator=(const SaveTrigger&) = delete;
  // Local. Puts the signals back to what was done at them before.
  ~SaveTrigger();

  // Whether a save is due after `step`, counted from 1: the same answer on every rank. Whoever gets true and saves, or
  // fails to, calls again after the next step. Asked for by several signals, or by signals and the clock, it is still
  // one save.
  //
  // Without `every` and `signals` it is local. With one of them it is collective: one rendezvous a call, unless
  // `every_steps` divides the step, which every rank knows.
  //
  // Errors: those of ProcessGroup::Agree if a rank has failed, or asks after another step.
  absl::StatusOr<bool> ShouldSave(int64_t step);

 private:
  SaveTrigger(ProcessGroup* absl_nonnull group, SaveTriggerOptions options);

  // Local. Whether this rank wants a save, as far as it knows.
  bool WantsSave();
  // Local. What has been wanted so far is done.
  void MarkAnswered();

  ProcessGroup* absl_nonnull const group_;
  const SaveTriggerOptions options_;
  std::vector<std::unique_ptr<internal::SignalWatch>> watches_;
  // When `every` began to run; nullopt: it does at the next call.
  std::optional<absl::Duration> since_;
};

}  // namespace cohort

#endif  // COHORT_CHECKPOINT_SAVE_TRIGGER_H_
