// File: supervisor.h
//
// One launch, from the first fork to the exit code.

#ifndef COHORT_TOOLS_LAUNCH_SUPERVISOR_H_
#define COHORT_TOOLS_LAUNCH_SUPERVISOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/console.h"
#include "cohort/tools/launch/environment.h"
#include "cohort/tools/launch/front_link.h"
#include "cohort/tools/launch/log_directory.h"
#include "cohort/tools/launch/output_plan.h"
#include "cohort/tools/launch/poller.h"
#include "cohort/tools/launch/process_table.h"
#include "cohort/tools/launch/rank_output.h"
#include "cohort/tools/launch/rank_process.h"
#include "cohort/tools/launch/report.h"
#include "cohort/tools/launch/signals.h"
#include "cohort/tools/launch/status_line.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// The exit codes of the launcher's own failures, as env, timeout and docker have them.
inline constexpr int kExitLauncherFailed = 125;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

// What to start.
struct Job {
  JobPlan plan;
  // The program and its arguments.
  std::vector<std::string> command;
  // The launcher's own; each rank gets it with torchrun's variables.
  Environment environment;
  // Between the request to stop and SIGKILL.
  absl::Duration grace;
  // Where the ranks' output goes, by local rank; empty: to the console.
  OutputPlan outputs = {};
  // Where its files and the ranks' error files are made; must outlive the supervisor. nullptr: there are none.
  LogDirectory* logs = nullptr;
};

// How an attempt ended, and whether another one may be worth while.
struct AttemptEnd {
  enum class Kind {
    kFinal,      // success, or told to stop, or the launcher could not do its work
    kFailed,     // a rank failed by itself
    kPreempted,  // the ranks ended with kExitPreempted by themselves
  };
  Kind kind = Kind::kFinal;
  int exit_code = 0;  // see docs/launching.md
};

// How long after a request to stop Run() returns at the latest, unless the system holds it up.
absl::Duration LongestStop(absl::Duration grace);

// Starts the ranks of one launcher and sees to it that all of them end: by themselves, or because one failed, or
// because the launcher was told to stop. The process must have no other thread and no other children.
class Supervisor {
 public:
  // All must outlive the supervisor. Requests come from both `signals` and `front`, which the poller must watch if it
  // has a descriptor; if the process in front dies, all processes are killed.
  Supervisor(const Job& job, Poller& poller, SignalReader& signals, FrontLink& front, Console& console);

  // Blocks until no process of any rank's process group is left and everything they printed is written; there is no
  // deadline but for the one that a request to stop sets. To be called once.
  AttemptEnd Run();

 private:
  using Clock = std::chrono::steady_clock;

  // A phase is never left for an earlier one.
  enum class Phase {
    kRunning,   // deadline_: for the others, once a rank has said that it was preempted.
    kStopping,  // All ranks were asked to stop and have until deadline_.
    kKilling,   // All were sent SIGKILL and should be gone long before deadline_.
    kPrinting,  // No process is left; what they printed is being written.
    kDone,
  };

  struct Rank {
    int number;
    RankProcess process;
    Clock::time_point start;
    RankOutput out;
    RankOutput err;
    // The order of the event that was the first sign of its end.
    std::optional<int64_t> death_order = std::nullopt;
    std::optional<RankEnd> end = std::nullopt;
  };

  absl::Status StartAll();
  absl::Status StartRank(int local_rank);
  absl::StatusOr<UniqueFd> OpenStandardInput(int local_rank);
  absl::Status MakeLogDirectories();
  absl::StatusOr<UniqueFd> OpenLogFile(bool is_wanted, int local_rank, std::string_view name);
  void OnStartFailed(const absl::Status& status);

  // Does what is due, then waits, then tells of what has happened.
  void Turn();
  void OnAllEnded();
  void UpdateStatus();
  void ShowMore();
  bool HasMoreToShow(bool now) const;
  void FlushConsole();
  void UpdateWatches();
  void SetWatched(bool should_be, int fd, Event event, uint32_t events);
  std::optional<absl::Duration> TimeLeft() const;

  void Dispatch(Event event);
  void ReadOutput(RankOutput& output);
  void EndOutput(RankOutput& output);
  void OnLifelineBroken(size_t index, int64_t order);
  void CollectEnd(size_t index, int64_t order);
  bool IsAsAsked(const ProcessEnd& how) const;
  void ReapOrphans();
  void OnSignal(int signal);
  void OnFront();
  void OnStopRequest(int signal);
  void OnDeadline();
  void OnConsoleError(int error);
  void CheckLogFiles();

  void OnFirstFailure(size_t index);
  void OnFirstPreempted();
  void GiveUpWaiting();
  void BeginStop(int exit_code, int signal);
  void KillAll();
  void FinishOutput();
  void KillTheRest();
  void PrintFirstFailure(const Rank& rank);
  int LocalRank(const Rank& rank) const { return rank.number - job_.plan.rank(0); }
  std::vector<std::string> ErrorReportOf(const Rank& rank) const;
  AttemptEnd::Kind Kind() const;
  std::vector<RankEnd> Ends(std::optional<size_t> but_for) const;
  void PrintSummary();

  // A line of the launcher's own on standard error.
  void Say(std::string_view text);
  std::string LiveRanks() const;
  std::string GraceEnd() const;

  const Job& job_;
  Poller& poller_;
  SignalReader& signals_;
  FrontLink& front_;
  Console& console_;
  ProcessTable processes_;
  std::vector<Rank> ranks_;
  StatusLine status_;

  Phase phase_ = Phase::kRunning;
  std::optional<Clock::time_point> deadline_;
  int exit_code_ = 0;
  // The index of the rank whose failure came first, if that was what began the end.
  std::optional<size_t> first_failure_;
  // What the ranks were asked to stop with; 0 before.
  int stop_signal_ = 0;
  int num_interrupts_ = 0;
  // The ranks have places for their error files.
  bool has_error_files_ = false;
  bool was_told_to_stop_ = false;
  // That, or the launcher could not do its work.
  bool is_final_ = false;
  // The signal that asks ranks to save and to stop, without asking the launcher, was passed on.
  bool was_preempted_from_outside_ = false;
  bool orphans_may_wait_ = false;
  bool has_lost_logs_ = false;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_SUPERVISOR_H_
