#include "cohort/runtime/testing/scripted_job.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/log/absl_check.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

// Longer than any deadline that a test sets: what hangs should be explained by itself first.
constexpr absl::Duration kPatience = absl::Minutes(1);
constexpr absl::Duration kPollInterval = absl::Milliseconds(5);

std::string PathOf(const std::string& name) { return absl::StrCat(::testing::TempDir(), "/", name); }

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

pid_t Spawn(const std::string& name, const ScriptedRank::Environment& environment,
            const std::vector<std::string>& steps) {
  std::vector<std::string> arguments = {Runfile("runtime/testing/rank_script")};
  arguments.insert(arguments.end(), steps.begin(), steps.end());
  std::vector<std::string> variables;
  for (const auto& [variable, value] : environment) variables.push_back(absl::StrCat(variable, "=", value));
  posix_spawn_file_actions_t actions;
  ABSL_CHECK_EQ(posix_spawn_file_actions_init(&actions), 0);
  for (const auto& [fd, suffix] : {std::pair(STDOUT_FILENO, ".out"), std::pair(STDERR_FILENO, ".err")}) {
    ABSL_CHECK_EQ(posix_spawn_file_actions_addopen(&actions, fd, PathOf(name + suffix).c_str(),
                                                   O_WRONLY | O_CREAT | O_TRUNC, 0600),
                  0);
  }
  pid_t pid = -1;
  const int error = posix_spawn(&pid, arguments[0].c_str(), &actions, nullptr, Pointers(arguments).data(),
                                Pointers(variables).data());
  ABSL_CHECK_EQ(error, 0) << arguments[0] << ": " << strerror(error);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

}  // namespace

ScriptedRank::ScriptedRank(std::string name, const Environment& environment, const std::vector<std::string>& steps)
    : name_(std::move(name)), pid_(Spawn(name_, environment, steps)) {}

ScriptedRank::ScriptedRank(ScriptedRank&& other) noexcept
    : name_(other.name_), pid_(std::exchange(other.pid_, -1)), exit_code_(other.exit_code_) {}

ScriptedRank::~ScriptedRank() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool ScriptedRank::HasEnded() {
  if (pid_ < 0) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  pid_ = -1;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  return true;
}

std::vector<StepReport> ScriptedRank::Reports() const {
  std::vector<std::string> lines = absl::StrSplit(ReadFile(PathOf(name_ + ".out")), '\n');
  lines.pop_back();  // what follows the last end of line: nothing, or the beginning of a report
  std::vector<StepReport> reports;
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(' ', 3));
    double seconds = 0;
    ABSL_CHECK(fields.size() == 4 && absl::SimpleAtod(fields[2], &seconds)) << line;
    reports.push_back({.step = fields[0], .code = fields[1], .took = absl::Seconds(seconds), .text = fields[3]});
  }
  return reports;
}

std::vector<StepReport> ScriptedRank::AwaitSteps(size_t num_steps) {
  AwaitThat([&] { return HasEnded() || Reports().size() >= num_steps; });
  return Reports();
}

std::vector<StepReport> ScriptedRank::AwaitEnd() {
  AwaitThat([&] { return HasEnded(); });
  return Reports();
}

std::string ScriptedRank::Errors() const {
  // Debian's Gloo tells that it is connected. That is not an error, and not ours.
  std::vector<std::string> lines = absl::StrSplit(ReadFile(PathOf(name_ + ".err")), '\n');
  std::erase_if(lines, [](const std::string& line) {
    return absl::StartsWith(line, "[./gloo/") && absl::StrContains(line, "] INFO Rank ");
  });
  return absl::StrJoin(lines, "\n");
}

ScriptedJob::ScriptedJob(int world_size, std::string master_addr)
    : world_size_(world_size), master_addr_(std::move(master_addr)) {
  // One socket for both families, so that the port is free at each of loopback's addresses.
  reservation_ = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  const int off = 0;
  sockaddr_in6 address = {};
  address.sin6_family = AF_INET6;
  socklen_t size = sizeof(address);
  ABSL_CHECK(reservation_ >= 0 && setsockopt(reservation_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
             setsockopt(reservation_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0 &&
             bind(reservation_, reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
             getsockname(reservation_, reinterpret_cast<sockaddr*>(&address), &size) == 0)
      << strerror(errno);
  port_ = ntohs(address.sin6_port);
}

ScriptedJob::~ScriptedJob() { close(reservation_); }

ScriptedRank::Environment ScriptedJob::EnvironmentOf(int rank) const {
  return {{"RANK", absl::StrCat(rank)},       {"WORLD_SIZE", absl::StrCat(world_size_)},
          {"LOCAL_RANK", absl::StrCat(rank)}, {"LOCAL_WORLD_SIZE", absl::StrCat(world_size_)},
          {"MASTER_ADDR", master_addr_},      {"MASTER_PORT", absl::StrCat(port_)}};
}

ScriptedRank ScriptedJob::Start(int rank, const std::vector<std::string>& steps,
                                const ScriptedRank::Environment& changes) {
  ScriptedRank::Environment environment = EnvironmentOf(rank);
  for (const auto& [variable, value] : changes) {
    if (value.empty()) {
      environment.erase(variable);
    } else {
      environment[variable] = value;
    }
  }
  // The port tells the jobs of one test apart.
  return ScriptedRank(absl::StrCat("job_", port_, "_process_", num_started_++, "_rank_", rank), environment, steps);
}

std::string Runfile(const std::string& path) {
  const char* runfiles = std::getenv("TEST_SRCDIR");
  const char* workspace = std::getenv("TEST_WORKSPACE");
  ABSL_CHECK(runfiles != nullptr && workspace != nullptr) << "not run by Bazel";
  return absl::StrCat(runfiles, "/", workspace, "/", path);
}

std::string NewPath(const std::string& name) {
  static std::atomic<int> num_paths = 0;
  return PathOf(absl::StrCat("file_", num_paths++, "_", name));
}

std::string ReadFile(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

void GiveSign(const std::string& path) { ABSL_CHECK(std::ofstream(path).good()) << path; }

void AwaitThat(absl::FunctionRef<bool()> condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() >= deadline) {
      ADD_FAILURE() << "waited in vain for " << kPatience;
      return;
    }
    absl::SleepFor(kPollInterval);
  }
}

}  // namespace cohort::testing
