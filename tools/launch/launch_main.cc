// launch: starts the ranks of a distributed program on this machine. See docs/launching.md.

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status_macros.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/tools/launch/console.h"
#include "cohort/tools/launch/dry_run.h"
#include "cohort/tools/launch/environment.h"
#include "cohort/tools/launch/front_link.h"
#include "cohort/tools/launch/log_directory.h"
#include "cohort/tools/launch/options.h"
#include "cohort/tools/launch/output_plan.h"
#include "cohort/tools/launch/port_reservation.h"
#include "cohort/tools/launch/process_title.h"
#include "cohort/tools/launch/restarts.h"
#include "cohort/tools/launch/signals.h"
#include "cohort/tools/launch/supervisor.h"
#include "cohort/tools/launch/supervisor_process.h"

namespace cohort::launch {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitNoRank = 1;  // --explain: the environment is in error
// What the process that looks after the ranks has on top of what it promises, on a busy machine.
constexpr absl::Duration kFrontPatience = absl::Seconds(10);

// Descriptors 0, 1 and 2 must not be given to a pipe of ours because the caller had closed them.
void OpenStandardStreams() {
  int fd;
  do {
    fd = open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) close(fd);
}

int Complain(std::string_view message, int exit_code) {
  fprintf(stderr, "launch: %.*s\n", static_cast<int>(message.size()), message.data());
  return exit_code;
}

// The port is this machine's to reserve if rank 0 runs here.
absl::StatusOr<std::optional<PortReservation>> ReservePort(const Options& options) {
  if (options.node_rank != 0) return std::nullopt;
  return options.master_port.has_value() ? PortReservation::Claim(*options.master_port, options.master_addr)
                                         : PortReservation::ChooseFree(options.master_addr);
}

// Names the job. Launchers on several machines must come to the same name, and share nothing but where they meet.
std::string RunId(const Options& options, int master_port) {
  if (options.run_id.has_value()) return *options.run_id;
  if (options.nnodes > 1) return absl::StrCat(options.master_addr, ":", master_port);
  uint64_t number = 0;
  [[maybe_unused]] const ssize_t size = getrandom(&number, sizeof(number), 0);
  return absl::StrCat("launch-", absl::Hex(number, absl::kZeroPad16));
}

int Print(std::string_view text) {
  fwrite(text.data(), 1, text.size(), stdout);
  return fflush(stdout) == 0 ? 0 : Complain("cannot print", kExitLauncherFailed);
}

// Where files go that nobody named a directory for.
std::string TemporaryDirectory(const Environment& environment) {
  const auto found = environment.find("TMPDIR");
  return found == environment.end() || found->second.empty() ? "/tmp" : found->second;
}

// Where nobody wants files, it is for what ranks write into their error files, and goes with the launcher; absent if it
// cannot be.
absl::StatusOr<std::optional<LogDirectory>> MakeLogDirectory(const Options& options, const Job& job) {
  const std::string temporary = TemporaryDirectory(job.environment);
  if (options.log_dir.has_value() || HasFiles(options.outputs)) {
    absl::StatusOr<LogDirectory> made = LogDirectory::Create(options.log_dir.value_or(temporary), job.plan.run_id);
    if (made.ok()) return *std::move(made);
    return absl::Status(
        made.status().code(),
        absl::StrCat(made.status().message(), " (for log files; ",
                     options.log_dir.has_value() ? "--log-dir" : "TMPDIR or --log-dir", " names another place)"));
  }
  absl::StatusOr<LogDirectory> made = LogDirectory::CreateTemporary(temporary);
  return made.ok() ? std::optional<LogDirectory>(*std::move(made)) : std::nullopt;
}

// In the process that looks after the ranks.
absl::StatusOr<int> Supervise(const Job& job, FrontLink front) {
  ABSL_ASSIGN_OR_RETURN(SignalReader signals, SignalReader::OpenForChildren());
  Console console(STDOUT_FILENO, STDERR_FILENO);
  return RunAttempts(job, std::move(front), signals, console);
}

absl::StatusOr<int> Launch(const Options& options, Environment environment, char** argv) {
  ABSL_ASSIGN_OR_RETURN(const std::optional<PortReservation> reservation, ReservePort(options));
  const int master_port = reservation.has_value() ? reservation->port() : *options.master_port;
  Job job = {
      .plan = {.nproc_per_node = options.nproc_per_node,
               .nnodes = options.nnodes,
               .node_rank = options.node_rank,
               .master_addr = options.master_addr,
               .master_port = master_port,
               .run_id = RunId(options, master_port),
               .role = options.role,
               .max_restarts = options.max_restarts},
      .command = options.command,
      .environment = std::move(environment),
      .grace = options.grace,
      .outputs = options.outputs,
  };
  if (options.dry_run) return Print(DescribeRanks(job.plan, job.environment, job.command, options.outputs));
  ABSL_ASSIGN_OR_RETURN(std::optional<LogDirectory> logs, MakeLogDirectory(options, job));
  if (logs.has_value()) job.logs = &*logs;
  const pid_t front_pid = getpid();
  return RunInSupervisorProcess(LongestStop(options.grace) + kFrontPatience, [&](FrontLink front) {
    SetProcessTitle(argv, "rank-keeper", absl::StrCat(" of ", front_pid));
    const absl::StatusOr<int> exit_code = Supervise(job, std::move(front));
    logs.reset();  // in both processes: the one in front may be dead
    return exit_code.ok() ? *exit_code : Complain(exit_code.status().message(), kExitLauncherFailed);
  });
}

int Main(int argc, char** argv) {
  OpenStandardStreams();
  Environment environment = ReadEnvironment(environ);
  const absl::StatusOr<Options> options = ParseOptions(absl::MakeConstSpan(argv + 1, argc - 1), environment);
  if (!options.ok()) return Complain(absl::StrCat(options.status().message(), " (see launch --help)"), kExitUsage);
  if (options->help) return Print(HelpText());
  if (options->explain) {
    const int printed = Print(ExplainRankInfoFromEnvironment());
    return printed == 0 && !RankInfoFromEnvironment().ok() ? kExitNoRank : printed;
  }
  const absl::StatusOr<int> exit_code = Launch(*options, std::move(environment), argv);
  return exit_code.ok() ? *exit_code : Complain(exit_code.status().message(), kExitLauncherFailed);
}

}  // namespace
}  // namespace cohort::launch

int main(int argc, char** argv) { return cohort::launch::Main(argc, argv); }
