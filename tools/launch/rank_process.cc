// Starting a rank, in the child after vfork(). That saves the copy of our address space that nobody needs (0.3 ms a
// rank, a quarter of what a rank costs); in return the child must change none of our memory, and so it only makes
// system calls.
//
//   1  Ask for SIGKILL when the parent dies, so that a launcher killed with SIGKILL leaves no rank. The parent may have
//      died before the request: then the child has a new parent, and ends.
//   2  Lead a process group of its own: a signal to the group reaches the rank's helpers as well, and a ^C typed at the
//      terminal reaches the launcher alone, which passes it on exactly once.
//   3  Standard streams, signal actions and mask.
//   4  One more pipe stays open in the rank, under a high number, and nothing is ever written to it. When a process
//      ends, Linux releases its files in descending order of their numbers (since 4.3), so that the parent sees this
//      one hang up before any other rank can see a connection broken. Without it, a rank that ends because of that may
//      end, altogether, before the one that was the cause: a busy machine may take the processor away from the latter
//      half-way through its end.
//   5  exec. If it fails, the errno goes to the parent through a pipe that a successful exec closes (close-on-exec). So
//      the parent knows which of the two it was, and nobody has to guess from an exit code of 127.

#include "cohort/tools/launch/rank_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/status/status_macros.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/signals.h"

namespace cohort::launch {
namespace {

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

absl::StatusOr<Pipe> OpenPipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot open a pipe");
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Above what a program opens, and below the usual limit of 1024. If it cannot be had, there is just no lifeline.
constexpr int kMinLifelineNumber = 1000;

// What a child tells its parent if it cannot become the program.
struct ChildFailure {
  int error;
  bool at_exec;
};

struct ChildPlan {
  char* const* arguments;
  char* const* environment;
  int in;
  int out;
  int err;
  int lifeline;
  int failure;
  pid_t parent;
};

[[noreturn]] void Fail(const ChildPlan& plan, bool at_exec) {
  const ChildFailure failure = {errno, at_exec};
  // If this cannot be written, the parent sees a rank that exits with 127.
  [[maybe_unused]] const ssize_t written = write(plan.failure, &failure, sizeof(failure));
  _exit(127);
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) Fail(plan, false);
  if (getppid() != plan.parent) _exit(127);
  if (setpgid(0, 0) != 0) Fail(plan, false);
  if (dup2(plan.in, STDIN_FILENO) < 0 || dup2(plan.out, STDOUT_FILENO) < 0 || dup2(plan.err, STDERR_FILENO) < 0) {
    Fail(plan, false);
  }
  fcntl(plan.lifeline, F_DUPFD, kMinLifelineNumber);
  ResetSignals();
  execvpe(plan.arguments[0], plan.arguments, plan.environment);
  Fail(plan, true);
}

// " in DIRECTORY" for a path that is relative: under `bazel run` that is not where a person stands.
std::string WhereItWasLookedFor(const std::string& program) {
  std::error_code error;
  const std::filesystem::path directory = std::filesystem::current_path(error);
  return program.front() == '/' || error ? "" : absl::StrCat(" in ", directory.string());
}

absl::Status StartError(const std::string& program, const ChildFailure& failure) {
  const std::string named = program.empty() ? "\"\"" : program;
  if (!failure.at_exec) {
    return absl::UnavailableError(absl::StrCat("cannot prepare a process for ", named, ": ", strerror(failure.error)));
  }
  const std::string message = absl::StrCat("cannot start ", named, ": ", strerror(failure.error));
  // Of the machine, and not of the program.
  constexpr int kScarce[] = {EAGAIN, ENOMEM, EMFILE, ENFILE, EIO};
  if (absl::c_linear_search(kScarce, failure.error)) return absl::UnavailableError(message);
  if (failure.error == ENAMETOOLONG) return absl::NotFoundError(message);
  const bool is_path = absl::StrContains(program, '/');
  if (failure.error == ENOENT) {
    if (!is_path) return absl::NotFoundError(absl::StrCat(message, " in PATH"));
    if (access(program.c_str(), F_OK) == 0) {
      return absl::FailedPreconditionError(absl::StrCat(message, " (the file exists; its interpreter does not)"));
    }
    return absl::NotFoundError(absl::StrCat(message, WhereItWasLookedFor(program)));
  }
  std::error_code unknown;
  if (is_path && failure.error == EACCES && std::filesystem::is_directory(program, unknown)) {
    return absl::FailedPreconditionError(absl::StrCat("cannot start ", named, ": it is a directory"));
  }
  return absl::FailedPreconditionError(message);
}

// Waits until the child has become the program; an error if it could not, and has ended.
absl::Status AwaitExec(const UniqueFd& failure_pipe, pid_t pid, const std::string& program) {
  ChildFailure failure;
  ssize_t count;
  do {
    count = read(failure_pipe.get(), &failure, sizeof(failure));
  } while (count < 0 && errno == EINTR);
  if (count != sizeof(failure)) return absl::OkStatus();
  waitpid(pid, nullptr, 0);
  return StartError(program, failure);
}

}  // namespace

absl::StatusOr<RankProcess> StartRank(const RankCommand& command) {
  const std::vector<char*> arguments = Pointers(command.arguments);
  const std::vector<char*> environment = Pointers(command.environment);
  ABSL_ASSIGN_OR_RETURN(Pipe out, OpenPipe());
  ABSL_ASSIGN_OR_RETURN(Pipe err, OpenPipe());
  ABSL_ASSIGN_OR_RETURN(Pipe lifeline, OpenPipe());
  ABSL_ASSIGN_OR_RETURN(Pipe failure, OpenPipe());

  const ChildPlan plan = {.arguments = arguments.data(),
                          .environment = environment.data(),
                          .in = command.stdin_fd,
                          .out = out.write.get(),
                          .err = err.write.get(),
                          .lifeline = lifeline.write.get(),
                          .failure = failure.write.get(),
                          .parent = getpid()};
  const pid_t pid = vfork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (pid == 0) RunChild(plan);
  failure.write.reset();
  ABSL_RETURN_IF_ERROR(AwaitExec(failure.read, pid, command.arguments[0]));

  // Reads must not block; the rank's writes, through the other end, must.
  fcntl(out.read.get(), F_SETFL, O_NONBLOCK);
  fcntl(err.read.get(), F_SETFL, O_NONBLOCK);
  return RankProcess{.pid = pid,
                     .exited = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))),
                     .lifeline = std::move(lifeline.read),
                     .out = std::move(out.read),
                     .err = std::move(err.read)};
}

}  // namespace cohort::launch
