#include "cohort/runtime/internal/conformance_processes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status_macros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/runtime/internal/steady_time.h"

namespace cohort::internal {
namespace {

std::filesystem::path OutcomeFile(const std::string& directory, int rank) {
  return std::filesystem::path(directory) / absl::StrCat("outcome.", rank);
}

absl::Status RunRank(const ConformanceCheck& check, int rank, const std::string& directory, MakeGroup make_group) {
  ABSL_ASSIGN_OR_RETURN(std::unique_ptr<ProcessGroup> group, make_group(rank, directory));
  ConformanceRank self{.group = *group,
                       .evidence = Evidence(directory, rank),
                       .die = [] { raise(SIGKILL); },
                       .freeze = [] { raise(SIGSTOP); }};
  return check.run(self);
}

[[noreturn]] void BeRank(const ConformanceCheck& check, int rank, const std::string& directory, MakeGroup make_group) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // a frozen rank must not outlive its test
  absl::Status status = RunRank(check, rank, directory, make_group);
  std::ofstream(OutcomeFile(directory, rank)) << status.ToString();
  _exit(status.ok() ? EXIT_SUCCESS : EXIT_FAILURE);
}

// The exit status of the process if it ends by `deadline`.
std::optional<int> AwaitEnd(pid_t pid, SteadyTime deadline) {
  while (true) {
    int status = 0;
    pid_t ended = waitpid(pid, &status, WNOHANG);
    ABSL_CHECK(ended >= 0 || errno == EINTR);
    if (ended == pid) return status;
    if (SteadyNow() >= deadline) return std::nullopt;
    absl::SleepFor(absl::Milliseconds(2));
  }
}

void Kill(pid_t pid) {
  kill(pid, SIGKILL);
  AwaitEnd(pid, SteadyTime::max());
}

// What is wrong with how the rank has ended; empty if nothing.
std::string Complaint(int rank, const std::optional<int>& status, const std::string& directory) {
  if (!status.has_value()) return absl::StrCat("rank ", rank, " hung");
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == EXIT_SUCCESS) return "";
  std::ifstream file(OutcomeFile(directory, rank));
  std::string outcome((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (WIFSIGNALED(*status)) outcome = absl::StrCat("signal ", WTERMSIG(*status));
  return absl::StrCat("rank ", rank, ": ", outcome);
}

}  // namespace

absl::Status RunWithProcesses(const ConformanceCheck& check, MakeGroup make_group, absl::Duration patience) {
  const char* parent = getenv("TEST_TMPDIR");
  std::string directory = absl::StrCat(parent == nullptr ? "/tmp" : parent, "/conformance.XXXXXX");
  if (mkdtemp(directory.data()) == nullptr) return absl::ErrnoToStatus(errno, directory);

  std::vector<pid_t> pids;
  for (int rank = 0; rank < check.world_size; ++rank) {
    pid_t pid = fork();
    if (pid == 0) BeRank(check, rank, directory, make_group);
    ABSL_CHECK_GT(pid, 0) << "fork";
    pids.push_back(pid);
  }

  std::vector<std::string> complaints;
  const SteadyTime deadline = After(SteadyNow(), patience);
  auto is_casualty = [&](int rank) { return std::ranges::count(check.casualties, rank) > 0; };
  for (int rank = 0; rank < check.world_size; ++rank) {
    if (is_casualty(rank)) continue;
    std::optional<int> status = AwaitEnd(pids[rank], deadline);
    if (!status.has_value()) Kill(pids[rank]);
    std::string complaint = Complaint(rank, status, directory);
    if (!complaint.empty()) complaints.push_back(std::move(complaint));
  }
  for (int rank : check.casualties) {
    Kill(pids[rank]);
    if (std::filesystem::exists(OutcomeFile(directory, rank))) {
      complaints.push_back(absl::StrCat("rank ", rank, " was to die or freeze, and did not"));
    }
  }
  std::filesystem::remove_all(directory);
  return complaints.empty() ? absl::OkStatus() : absl::InternalError(absl::StrJoin(complaints, "\n"));
}

}  // namespace cohort::internal
