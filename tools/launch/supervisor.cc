// From the first failure to the exit code:
//
//   1  Ranks are started one after the other; each has become the program, or failed to, before the next is started. If
//      one cannot be started, those before it are killed: they have done nothing yet.
//   2  The first rank that ends with anything but 0 is the cause of whatever follows. But the end of a process takes
//      time: while it closes its files others fail because of that, and theirs may be the first end that is seen. So
//      ranks are ordered by when the kernel saw their lifelines hang up (see rank_process.cc), and a rank that ends
//      after the stop has begun takes the first place if the sign of its death is older. The last words of a rank are
//      read before its end is reported.
//   3  Every other process is asked to stop: SIGTERM, or the signal that the launcher itself was sent, to each process
//      group; then SIGCONT, as a stopped process would not see it. This is done once: a second request could break into
//      the saving of a checkpoint that the first one began.
//   4  After the grace time, or a second ^C, SIGKILL. A process that survives even that (it hangs in the kernel) is
//      named, and left behind: waiting for it would be a hang of our own.
//   5  A rank that ends with kExitPreempted has not failed: all ranks have agreed to stop and are about to end so, or the
//      program is at fault. So the others are sent nothing, and have the grace time to end as well; after that they are
//      stopped as in 3.
//   6  A helper that outlives its rank belongs to the job: it has the same grace time if the job is being stopped (it
//      may be the real program, under a shell that has gone), and is killed at once if all ranks have ended with 0.
//   7  Then what is left of the job outside the process groups is killed: a job that is over holds no device and no port.
//   8  Only then are the pipes emptied and closed, and the summary written.

#include "cohort/tools/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/tools/launch/error_report.h"
#include "cohort/tools/launch/process_tree.h"

namespace cohort::launch {
namespace {

// SIGKILL takes a process away in milliseconds, unless it hangs in the kernel.
constexpr std::chrono::seconds kKillTime(5);
constexpr absl::Duration kRestKillTime = absl::Seconds(1);
// The least that a reader has left once the job was told to stop and has ended.
constexpr std::chrono::seconds kPrintTime(5);
constexpr int kSummaryLines = 10;

// "[3] ", as wide as the last rank's; nothing if there is one rank only, whose output then is as without a launcher.
std::string LinePrefix(const JobPlan& plan, int rank) {
  if (plan.nproc_per_node == 1) return "";
  const size_t width = absl::StrCat(plan.world_size() - 1).size();
  const std::string number = absl::StrCat(rank);
  return absl::StrCat("[", std::string(width - number.size(), ' '), number, "] ");
}

std::string Rounded(absl::Duration duration) {
  return duration == absl::ZeroDuration() ? "0s" : absl::FormatDuration(absl::Ceil(duration, absl::Milliseconds(1)));
}

std::string DescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
  return absl::StrCat("; every rank needs 4 descriptors, and 1 for each of its files: ulimit -n is ", limit.rlim_cur);
}

// A program that leaves its error for us says it on standard error as well, as "error: TEXT" perhaps.
bool IsAllToldIn(const std::vector<std::string>& report, const std::vector<std::string>& lines) {
  const std::string told = absl::StrJoin(report, "\n");
  return absl::c_all_of(
      lines, [&](std::string_view line) { return absl::StrContains(told, absl::StripPrefix(line, "error: ")); });
}

// The codes of a missing program must not come from a missing directory.
absl::Status LogFileError(const absl::Status& status) { return absl::InternalError(status.message()); }

}  // namespace

absl::Duration LongestStop(absl::Duration grace) {
  return grace + absl::FromChrono(kKillTime) + kRestKillTime + std::max(grace, absl::FromChrono(kPrintTime));
}

Supervisor::Supervisor(const Job& job, Poller& poller, SignalReader& signals, FrontLink& front, Console& console)
    : job_(job),
      poller_(poller),
      signals_(signals),
      front_(front),
      console_(console),
      status_(console, getppid(), job.environment, job.plan.nproc_per_node) {}

AttemptEnd Supervisor::Run() {
  poller_.Watch(signals_.fd(), {Source::kSignal}, EPOLLIN);
  if (absl::Status status = StartAll(); !status.ok()) OnStartFailed(status);
  while (phase_ != Phase::kDone) Turn();
  return {.kind = Kind(), .exit_code = exit_code_};
}

AttemptEnd::Kind Supervisor::Kind() const {
  if (is_final_ || was_preempted_from_outside_ || exit_code_ == 0) return AttemptEnd::Kind::kFinal;
  return WasPreempted(Ends(/*but_for=*/std::nullopt)) ? AttemptEnd::Kind::kPreempted : AttemptEnd::Kind::kFailed;
}

absl::Status Supervisor::StartAll() {
  ABSL_RETURN_IF_ERROR(ProcessTable::AdoptOrphans());
  ABSL_RETURN_IF_ERROR(MakeLogDirectories());
  ranks_.reserve(job_.plan.nproc_per_node);
  for (int local_rank = 0; local_rank < job_.plan.nproc_per_node; ++local_rank) {
    ABSL_RETURN_IF_ERROR(StartRank(local_rank));
  }
  return absl::OkStatus();
}

absl::Status Supervisor::MakeLogDirectories() {
  if (job_.logs == nullptr) return absl::OkStatus();
  const absl::Status made = job_.logs->AddAttempt(job_.plan.restart_count, job_.plan.nproc_per_node);
  has_error_files_ = made.ok();
  if (!HasFiles(job_.outputs)) return absl::OkStatus();  // the job goes on without error files
  if (!made.ok()) return LogFileError(made);
  Say(absl::StrCat("log files: ", job_.logs->path(), "/attempt_", job_.plan.restart_count, "/"));
  return absl::OkStatus();
}

// Empty if the stream has no file.
absl::StatusOr<UniqueFd> Supervisor::OpenLogFile(bool is_wanted, int local_rank, std::string_view name) {
  if (!is_wanted) return UniqueFd();
  absl::StatusOr<UniqueFd> file = job_.logs->MakeFile(job_.plan.restart_count, local_rank, name);
  return file.ok() ? std::move(file) : LogFileError(file.status());
}

absl::Status Supervisor::StartRank(int local_rank) {
  const RankOutputPlan plan = job_.outputs.empty() ? RankOutputPlan() : job_.outputs[local_rank];
  ABSL_ASSIGN_OR_RETURN(UniqueFd out_file, OpenLogFile(plan.out.to_file, local_rank, kStdoutLog));
  ABSL_ASSIGN_OR_RETURN(UniqueFd err_file, OpenLogFile(plan.err.to_file, local_rank, kStderrLog));
  ABSL_ASSIGN_OR_RETURN(const UniqueFd standard_input, OpenStandardInput(local_rank));
  Environment environment = RankEnvironment(job_.plan, local_rank, job_.environment);
  if (has_error_files_) {
    environment["TORCHELASTIC_ERROR_FILE"] = job_.logs->FilePath(job_.plan.restart_count, local_rank, kErrorFile);
  }
  const RankCommand command = {
      .arguments = job_.command,
      .environment = EnvironmentEntries(environment),
      .stdin_fd = standard_input ? standard_input.get() : STDIN_FILENO,
  };
  const Clock::time_point start = Clock::now();
  ABSL_ASSIGN_OR_RETURN(RankProcess process, launch::StartRank(command));
  processes_.Add(process.pid);

  const size_t index = ranks_.size();
  const int number = job_.plan.rank(local_rank);
  const std::string prefix = LinePrefix(job_.plan, number);
  if (process.exited) poller_.Watch(process.exited.get(), {Source::kRankExit, index}, EPOLLIN);
  poller_.Watch(process.lifeline.get(), {Source::kRankLifeline, index}, 0);
  auto console = [this](StreamPlan plan, Stream stream) {
    return plan.to_console ? &console_.pending(stream) : nullptr;
  };
  RankOutput out(std::move(process.out), prefix, console(plan.out, Stream::kOut), std::move(out_file));
  RankOutput err(std::move(process.err), prefix, console(plan.err, Stream::kErr), std::move(err_file));
  ranks_.push_back(
      {.number = number, .process = std::move(process), .start = start, .out = std::move(out), .err = std::move(err)});
  return absl::OkStatus();
}

// Empty if the rank gets the launcher's own.
absl::StatusOr<UniqueFd> Supervisor::OpenStandardInput(int local_rank) {
  if (local_rank == 0) return UniqueFd();
  UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!nothing) return absl::ErrnoToStatus(errno, "cannot open /dev/null");
  return nothing;
}

void Supervisor::OnStartFailed(const absl::Status& status) {
  is_final_ = true;
  if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) {
    Say(status.message());
    exit_code_ = absl::IsNotFound(status) ? kExitNotFound : kExitNotExecutable;
  } else {
    Say(absl::StrCat("rank ", job_.plan.rank(static_cast<int>(ranks_.size())), ": ", status.message(),
                     absl::IsResourceExhausted(status) ? DescriptorLimit() : ""));
    exit_code_ = kExitLauncherFailed;
  }
  KillAll();
}

void Supervisor::Turn() {
  if (phase_ < Phase::kPrinting && processes_.AllHaveEnded()) OnAllEnded();
  if (deadline_.has_value() && Clock::now() >= *deadline_) OnDeadline();
  CheckLogFiles();
  UpdateStatus();
  ShowMore();
  FlushConsole();
  if (phase_ == Phase::kDone) return;
  UpdateWatches();
  for (const Event event : poller_.Wait(TimeLeft())) {
    Dispatch(event);
    if (phase_ == Phase::kDone) return;
  }
  if (orphans_may_wait_) ReapOrphans();
}

void Supervisor::OnAllEnded() {
  if (processes_.LiveGroups().empty()) {
    FinishOutput();
  } else if (phase_ == Phase::kRunning) {
    Say(absl::StrCat("killing what was left running in the background by ", LiveRanks()));
    KillAll();
  }
}

void Supervisor::UpdateStatus() {
  if (phase_ >= Phase::kPrinting) return status_.Clear();
  const auto is_up = [](const Rank& rank) { return !rank.end.has_value(); };
  status_.Update(static_cast<int>(std::count_if(ranks_.begin(), ranks_.end(), is_up)));
}

// What the console had no room for before.
void Supervisor::ShowMore() {
  for (Rank& rank : ranks_) {
    for (RankOutput* output : {&rank.out, &rank.err}) {
      while (output->is_behind() && output->has_room()) output->ShowMore();
    }
  }
}

bool Supervisor::HasMoreToShow(bool now) const {
  const auto has_more = [now](const RankOutput& output) { return output.is_behind() && (!now || output.has_room()); };
  return console_.error() == 0 && std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
           return has_more(rank.out) || has_more(rank.err);
         });
}

void Supervisor::FlushConsole() {
  console_.Flush();
  if (console_.error() != 0 && exit_code_ == 0) {
    OnConsoleError(console_.error());
    console_.Flush();
  }
  if (phase_ == Phase::kPrinting && console_.IsEmpty() && !HasMoreToShow(/*now=*/false)) phase_ = Phase::kDone;
}

// Output that is kept nowhere else stays in the ranks' pipes while the console is full.
void Supervisor::UpdateWatches() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    SetWatched(ranks_[i].out.may_read(), ranks_[i].out.fd(), {Source::kRankOut, i}, EPOLLIN);
    SetWatched(ranks_[i].err.may_read(), ranks_[i].err.fd(), {Source::kRankErr, i}, EPOLLIN);
  }
  for (const auto& file : console_.files()) {
    SetWatched(!file->pending.empty(), file->poll_fd(), {Source::kConsole}, EPOLLOUT);
  }
}

void Supervisor::SetWatched(bool should_be, int fd, Event event, uint32_t events) {
  if (fd < 0) return;
  should_be ? poller_.Watch(fd, event, events) : poller_.Unwatch(fd);
}

std::optional<absl::Duration> Supervisor::TimeLeft() const {
  if (HasMoreToShow(/*now=*/true)) return absl::ZeroDuration();
  const std::optional<absl::Duration> until_status = phase_ < Phase::kPrinting ? status_.TimeLeft() : std::nullopt;
  if (!deadline_.has_value()) return until_status;
  return std::min(absl::FromChrono(*deadline_ - Clock::now()), until_status.value_or(absl::InfiniteDuration()));
}

void Supervisor::Dispatch(Event event) {
  switch (event.source) {
    case Source::kRankLifeline:
      return OnLifelineBroken(event.index, event.order);
    case Source::kRankExit:
      return CollectEnd(event.index, event.order);
    case Source::kSignal:
      while (std::optional<int> signal = signals_.Next()) OnSignal(*signal);
      return;
    case Source::kFront:
      return OnFront();
    case Source::kRankOut:
      return ReadOutput(ranks_[event.index].out);
    case Source::kRankErr:
      return ReadOutput(ranks_[event.index].err);
    case Source::kConsole:
      return;  // Every turn flushes.
    case Source::kTerminal:
    case Source::kTerminalPipe:
      return;  // the process in front reads the terminal
  }
}

void Supervisor::ReadOutput(RankOutput& output) {
  if (output.fd() >= 0 && !output.Read()) EndOutput(output);
}

void Supervisor::EndOutput(RankOutput& output) {
  if (output.fd() < 0) return;
  poller_.Unwatch(output.fd());
  output.Finish();
}

void Supervisor::OnLifelineBroken(size_t index, int64_t order) {
  Rank& rank = ranks_[index];
  poller_.Unwatch(rank.process.lifeline.get());
  rank.process.lifeline.reset();
  // Some programs close every descriptor that they do not know, and go on.
  if (!rank.end.has_value() && processes_.IsDying(index)) rank.death_order = order;
}

void Supervisor::CollectEnd(size_t index, int64_t order) {
  const std::optional<ProcessEnd> how = processes_.CollectEnd(index);
  if (!how.has_value()) return;
  Rank& rank = ranks_[index];
  if (rank.process.exited) {
    poller_.Unwatch(rank.process.exited.get());
    rank.process.exited.reset();
  }
  if (!rank.death_order.has_value()) rank.death_order = order;
  rank.out.Drain();
  rank.err.Drain();
  rank.end = {.rank = rank.number,
              .pid = rank.process.pid,
              .how = *how,
              .when = absl::Now(),
              .lifetime = absl::FromChrono(Clock::now() - rank.start),
              .was_stopped = phase_ != Phase::kRunning && IsAsAsked(*how)};
  if (IsPreempted(*how) && phase_ == Phase::kRunning) OnFirstPreempted();
  if (!IsFailure(*how)) return;
  if (phase_ == Phase::kRunning) {
    OnFirstFailure(index);
  } else if (exit_code_ == 0) {
    exit_code_ = ShellExitCode(*how);  // one that had not ended in time; see GiveUpWaiting
  } else if (first_failure_.has_value() && *rank.death_order < *ranks_[*first_failure_].death_order) {
    first_failure_ = index;
    exit_code_ = ShellExitCode(*how);
  }
}

// Once ranks have been asked to stop: whether this is how they would.
bool Supervisor::IsAsAsked(const ProcessEnd& how) const {
  if (how.signal == SIGKILL) return phase_ == Phase::kKilling;
  return how.signal != 0 ? how.signal == stop_signal_ : !IsFailure(how);
}

void Supervisor::ReapOrphans() {
  while (const std::optional<size_t> leader = processes_.ReapOrphans()) {
    if (ranks_[*leader].process.exited) return;  // Its own event will tell, in the right order; we come back after it.
    CollectEnd(*leader, poller_.num_events());
  }
  orphans_may_wait_ = false;
}

void Supervisor::OnSignal(int signal) {
  if (signal == SIGCHLD) {
    orphans_may_wait_ = true;
  } else if (IsStopRequest(signal)) {
    OnStopRequest(signal);
  } else if (signal == SIGTSTP) {
    processes_.SignalAll(SIGTSTP);
    status_.Clear();
    FlushConsole();
    raise(SIGSTOP);  // the process in front waits for that, and sends CONT when it is continued itself
    processes_.SignalAll(SIGCONT);
  } else {
    if (signal == SIGUSR1) was_preempted_from_outside_ = true;
    processes_.SignalAll(signal);
  }
}

void Supervisor::OnFront() {
  while (std::optional<int> signal = front_.NextSignal()) OnSignal(*signal);
  if (!front_.is_broken()) return;
  // Nobody waits for an exit code any more, nor reads a summary.
  processes_.SignalAll(SIGKILL);
  KillDescendants(absl::FromChrono(kKillTime));
  is_final_ = true;
  exit_code_ = kExitLauncherFailed;
  phase_ = Phase::kDone;
}

void Supervisor::OnStopRequest(int signal) {
  is_final_ = was_told_to_stop_ = true;
  if (signal == SIGINT) ++num_interrupts_;
  // Whatever the ranks make of it: a run that was told to stop is no success.
  if (exit_code_ == 0) exit_code_ = 128 + signal;
  if (phase_ == Phase::kRunning) {
    Say(absl::StrCat("received ", SignalName(signal), ": passed on to all ranks; SIGKILL ", GraceEnd()));
    BeginStop(exit_code_, signal);
  } else if (phase_ == Phase::kPrinting) {
    // Nobody reads what is left, or the user would not ask.
    phase_ = Phase::kDone;
  } else if (phase_ == Phase::kStopping && num_interrupts_ >= 2) {
    Say(absl::StrCat("received SIGINT again: SIGKILL for ", LiveRanks()));
    KillAll();
  } else if (phase_ == Phase::kStopping && signal == SIGINT) {
    Say(absl::StrCat("received SIGINT: already stopping, SIGKILL ", GraceEnd(), "; the next SIGINT kills at once"));
  }
}

void Supervisor::OnFirstFailure(size_t index) {
  first_failure_ = index;
  const RankEnd& end = *ranks_[index].end;
  if (!processes_.LiveGroups().empty()) {
    Say(absl::StrCat(DescribeRank(end), " ", DescribeEnd(end.how), " after ", Rounded(end.lifetime),
                     "; stopping the others: SIGTERM now, SIGKILL ", GraceEnd()));
  }
  BeginStop(ShellExitCode(end.how), SIGTERM);
}

void Supervisor::OnFirstPreempted() {
  if (!deadline_.has_value()) deadline_ = Clock::now() + absl::ToChronoNanoseconds(job_.grace);
}

// The exit code is that of the first rank that ends with anything but 0 or kExitPreempted; there may be none.
void Supervisor::GiveUpWaiting() {
  Say(absl::StrCat(Rounded(job_.grace), " after the first rank exited with code ", kExitPreempted, ", ", LiveRanks(),
                   " had not ended: SIGTERM now, SIGKILL ", GraceEnd()));
  BeginStop(0, SIGTERM);
}

void Supervisor::BeginStop(int exit_code, int signal) {
  exit_code_ = exit_code;
  stop_signal_ = signal;
  phase_ = Phase::kStopping;
  deadline_ = Clock::now() + absl::ToChronoNanoseconds(job_.grace);
  processes_.SignalAll(signal);
  processes_.SignalAll(SIGCONT);
}

void Supervisor::OnDeadline() {
  if (phase_ == Phase::kRunning) {
    GiveUpWaiting();
  } else if (phase_ == Phase::kStopping) {
    Say(absl::StrCat(Rounded(job_.grace), " of grace are over: SIGKILL for ", LiveRanks()));
    KillAll();
  } else if (phase_ == Phase::kPrinting) {
    phase_ = Phase::kDone;
  } else {
    is_final_ = true;  // what they hold, a device or a port, is not to be had again
    Say(absl::StrCat("left behind, as not even SIGKILL ended them: processes of ", LiveRanks()));
    FinishOutput();
  }
}

void Supervisor::KillAll() {
  phase_ = Phase::kKilling;
  deadline_ = Clock::now() + kKillTime;
  processes_.SignalAll(SIGKILL);
}

void Supervisor::FinishOutput() {
  KillTheRest();
  for (Rank& rank : ranks_) {
    for (RankOutput* output : {&rank.out, &rank.err}) {
      output->Drain();
      EndOutput(*output);
    }
  }
  CheckLogFiles();
  PrintSummary();
  const bool may_restart = exit_code_ != 0 && !is_final_ && job_.plan.restart_count < job_.plan.max_restarts;
  if (was_preempted_from_outside_ && may_restart) Say("received SIGUSR1 before: no restart");
  phase_ = Phase::kPrinting;
  deadline_.reset();
  // Without a stop request a slow reader is waited for, as by any program in a pipe.
  if (was_told_to_stop_) {
    deadline_ = Clock::now() + std::max<Clock::duration>(absl::ToChronoNanoseconds(job_.grace), kPrintTime);
  }
}

void Supervisor::KillTheRest() {
  switch (KillDescendants(kRestKillTime)) {
    case Descendants::kNone:
      return;
    case Descendants::kKilled:
      return Say("killed what ranks had left running outside their process groups");
    case Descendants::kLeft:
      is_final_ = true;
      return Say("could not kill what ranks had left running outside their process groups");
  }
}

std::vector<RankEnd> Supervisor::Ends(std::optional<size_t> but_for) const {
  std::vector<RankEnd> ends;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (i != but_for && ranks_[i].end.has_value()) ends.push_back(*ranks_[i].end);
  }
  return ends;
}

void Supervisor::PrintSummary() {
  const std::vector<RankEnd> others = Ends(/*but_for=*/first_failure_);
  // Told to stop or not: what counts is that the ranks have done it. A launcher that cannot print says that instead.
  if (WasPreempted(others) && others.size() == static_cast<size_t>(job_.plan.nproc_per_node) && console_.error() == 0 &&
      !has_lost_logs_) {
    exit_code_ = kExitPreempted;
    return Say(DescribePreemption(others));
  }
  if (stop_signal_ == 0) return;
  if (first_failure_.has_value()) PrintFirstFailure(ranks_[*first_failure_]);
  for (const std::string& line : DescribeConsequences(others)) Say(line);
}

void Supervisor::PrintFirstFailure(const Rank& rank) {
  const std::string when = absl::FormatTime("%Y-%m-%d %H:%M:%E3S", rank.end->when, absl::LocalTimeZone());
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  Say(absl::StrCat(DescribeRank(*rank.end), " failed first: ", DescribeEnd(rank.end->how), " at ", when, " on ", host,
                   ", ", Rounded(rank.end->lifetime), " after its start"));
  const auto say_lines = [this](std::string_view what, const std::vector<std::string>& lines) {
    if (!lines.empty()) Say(absl::StrCat(what, ":"));
    for (const std::string& line : lines) Say(absl::StrCat("  ", line));
  };
  const std::vector<std::string> report = ErrorReportOf(rank);
  const std::vector<std::string> err = rank.err.LastLines(kSummaryLines);
  const std::vector<std::string> out = rank.out.LastLines(kSummaryLines);
  say_lines("its error", report);
  if (!IsAllToldIn(report, err)) say_lines("its last lines on standard error", err);
  if (err.empty()) say_lines("its last lines on standard output", out);
  if (!report.empty() || !err.empty() || !out.empty()) return;
  // It had no time for a word. What another one has noticed may help.
  for (const Rank& other : ranks_) {
    const std::vector<std::string> noticed = ErrorReportOf(other);
    if (noticed.empty()) continue;
    return say_lines(absl::StrCat("the error of rank ", other.number), noticed);
  }
}

std::vector<std::string> Supervisor::ErrorReportOf(const Rank& rank) const {
  if (!has_error_files_) return {};
  return ReadErrorReport(job_.logs->FilePath(job_.plan.restart_count, LocalRank(rank), kErrorFile), kSummaryLines);
}

// As if the launcher had printed by itself: a program whose output has gone ends with SIGPIPE.
void Supervisor::OnConsoleError(int error) {
  is_final_ = true;
  const int exit_code = error == EPIPE ? 128 + SIGPIPE : kExitLauncherFailed;
  std::string said = absl::StrCat("cannot print any more (", strerror(error), ")");
  if (phase_ == Phase::kRunning) {
    absl::StrAppend(&said, ": stopping all ranks, SIGKILL ", GraceEnd());
    BeginStop(exit_code, SIGTERM);
  }
  Say(said);  // also when the ranks have ended meanwhile, and only their last output is lost
  exit_code_ = exit_code;
}

// Half a log is worse than none if nobody knows of it.
void Supervisor::CheckLogFiles() {
  if (has_lost_logs_) return;
  for (const Rank& rank : ranks_) {
    const int error = rank.out.file_error() != 0 ? rank.out.file_error() : rank.err.file_error();
    if (error == 0) continue;
    has_lost_logs_ = is_final_ = true;
    const std::string_view name = rank.out.file_error() != 0 ? kStdoutLog : kStderrLog;
    std::string said =
        absl::StrCat("cannot write ", job_.logs->FilePath(job_.plan.restart_count, LocalRank(rank), name), " (",
                     strerror(error), ")");
    if (phase_ == Phase::kRunning) {
      absl::StrAppend(&said, ": stopping all ranks, SIGKILL ", GraceEnd());
      BeginStop(kExitLauncherFailed, SIGTERM);
    }
    if (exit_code_ == 0) exit_code_ = kExitLauncherFailed;
    return Say(said);
  }
}

void Supervisor::Say(std::string_view text) {
  absl::StrAppend(&console_.pending(Stream::kErr), "launch: ", text, "\n");
}

std::string Supervisor::LiveRanks() const {
  std::vector<int> numbers;
  for (const size_t index : processes_.LiveGroups()) numbers.push_back(ranks_[index].number);
  return absl::StrCat(numbers.size() == 1 ? "rank " : "ranks ", RankList(numbers));
}

std::string Supervisor::GraceEnd() const { return absl::StrCat("in ", Rounded(job_.grace)); }

}  // namespace cohort::launch
