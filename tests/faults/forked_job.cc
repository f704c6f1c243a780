#include "cohort/tests/faults/forked_job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cohort/checkpoint/testing/files.h"
#include "cohort/runtime/init_process_group.h"
#include "cohort/runtime/process_group.h"
#include "cohort/runtime/rank_info.h"
#include "cohort/tests/faults/small_disk.h"

namespace cohort::testing {
namespace {

int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ABSL_CHECK(bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
             getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace

ForkedJob::ForkedJob(const Body& body, int world_size, absl::Duration timeout)
    : reports_(FreshDirectoryInMemory()), pids_(world_size) {
  const int port = FreePort();
  for (int rank = world_size - 1; rank >= 0; --rank) pids_[rank] = Start(rank, port, timeout, body);
}

ForkedJob::~ForkedJob() {
  for (const pid_t pid : pids_) {
    if (pid == 0) continue;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
}

std::string ForkedJob::Wait(int rank) {
  int status = 0;
  ABSL_CHECK_EQ(waitpid(pids_[rank], &status, 0), pids_[rank]);
  pids_[rank] = 0;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return "killed";
  ABSL_CHECK(WIFEXITED(status)) << "rank " << rank << " was ended by signal " << WTERMSIG(status);
  return ReadFile(Report(rank));
}

std::vector<std::string> ForkedJob::Wait() {
  std::vector<std::string> ends;
  for (int rank = 0; rank < static_cast<int>(pids_.size()); ++rank) ends.push_back(Wait(rank));
  return ends;
}

std::string ForkedJob::Report(int rank) const { return absl::StrCat(reports_, "/", rank); }

pid_t ForkedJob::Start(int rank, int port, absl::Duration timeout, const Body& body) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int world_size = static_cast<int>(pids_.size());
  absl::StatusOr<std::unique_ptr<ProcessGroup>> group =
      InitProcessGroup({.backend = "gloo",
                        .init_timeout = absl::Seconds(60),
                        .timeout = timeout,
                        .rank_info = RankInfo{.rank = rank,
                                              .world_size = world_size,
                                              .local_rank = rank,
                                              .local_world_size = world_size,
                                              .master_addr = "127.0.0.1",
                                              .master_port = port}});
  const absl::Status ended = group.ok() ? body(**group, pids_) : group.status();
  WriteFile(Report(rank), ended.ok() ? "OK" : ended.ToString());
  _exit(0);
}

}  // namespace cohort::testing
