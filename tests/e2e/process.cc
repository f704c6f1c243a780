#include "cohort/tests/e2e/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

namespace fs = std::filesystem;

double Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& string : strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Environment(const Process::Setup& setup) {
  std::vector<std::string> lines;
  if (!setup.empty_environment) {
    for (const char* name : {"PATH", "TEST_TMPDIR"}) {
      if (const char* value = std::getenv(name)) lines.push_back(absl::StrCat(name, "=", value));
    }
  }
  for (const auto& [name, value] : setup.environment) lines.push_back(absl::StrCat(name, "=", value));
  return lines;
}

}  // namespace

Process::Process(std::vector<std::string> command, const Setup& setup) : shown_(absl::StrJoin(command, " ")) {
  int out[2], err[2];
  ABSL_CHECK_EQ(pipe2(out, O_CLOEXEC), 0);
  ABSL_CHECK_EQ(pipe2(err, O_CLOEXEC), 0);
  std::vector<std::string> environment = Environment(setup);
  // Everything that allocates comes before fork.
  const std::vector<char*> arguments = Pointers(command), variables = Pointers(environment);
  pid_ = fork();
  ABSL_CHECK_GE(pid_, 0);
  if (pid_ == 0) {
    setpgid(0, 0);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    if (setup.directory.empty() || chdir(setup.directory.c_str()) == 0) {
      execvpe(arguments[0], arguments.data(), variables.data());
    }
    _exit(126);
  }
  setpgid(pid_, pid_);
  close(out[1]);
  close(err[1]);
  fds_[0] = out[0];
  fds_[1] = err[0];
}

Process::~Process() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : fds_) {
    if (fd >= 0) close(fd);
  }
}

bool Process::Read(double deadline) {
  pollfd polled[2] = {{fds_[0], POLLIN, 0}, {fds_[1], POLLIN, 0}};  // poll passes over those below 0
  if (fds_[0] < 0 && fds_[1] < 0) return false;
  const int wait = static_cast<int>(1000 * std::max(0.0, deadline - Now()));
  const int ready = poll(polled, 2, wait);
  if (ready == 0) return false;
  if (ready < 0) return errno == EINTR;
  for (int i = 0; i < 2; ++i) {
    if (fds_[i] < 0 || polled[i].revents == 0) continue;
    char buffer[65536];
    const ssize_t length = read(fds_[i], buffer, sizeof(buffer));
    if (length > 0) {
      text_[i].append(buffer, length);
    } else {
      close(fds_[i]);
      fds_[i] = -1;
    }
  }
  return true;
}

bool Process::WaitForOutput(std::string_view text) {
  const double deadline = Now() + kPatienceSeconds;
  while (!absl::StrContains(text_[0], text)) {
    if (Read(deadline)) continue;
    ADD_FAILURE() << shown_ << " never wrote \"" << text << "\".\nstdout:\n" << text_[0] << "\nstderr:\n" << text_[1];
    return false;
  }
  return true;
}

Process::Result Process::Wait() {
  const double deadline = Now() + kPatienceSeconds;
  while (Read(deadline)) {
  }
  // Both streams are closed, so it has ended or will at once; or patience has ended.
  if (fds_[0] >= 0 || fds_[1] >= 0) {
    ADD_FAILURE() << shown_ << " did not end.\nstdout:\n" << text_[0] << "\nstderr:\n" << text_[1];
    kill(-pid_, SIGKILL);
  }
  int status = 0;
  ABSL_CHECK_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  return {WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), text_[0], text_[1]};
}

Process::Result RunToEnd(std::vector<std::string> command, const Process::Setup& setup) {
  return Process(std::move(command), setup).Wait();
}

pid_t PidOfRank(pid_t launcher, int rank) {
  // They are children of its child.
  std::vector<std::string> family = {absl::StrCat(launcher)};
  for (size_t i = 0; i < family.size(); ++i) {
    const std::string environment = ReadFile(absl::StrCat("/proc/", family[i], "/environ"));
    for (const std::string_view line : absl::StrSplit(environment, '\0')) {
      pid_t pid;
      if (line == absl::StrCat("RANK=", rank) && absl::SimpleAtoi(family[i], &pid)) return pid;
    }
    const std::string children = ReadFile(absl::StrCat("/proc/", family[i], "/task/", family[i], "/children"));
    for (const std::string_view child : absl::StrSplit(children, ' ', absl::SkipWhitespace())) {
      family.emplace_back(child);
    }
  }
  ADD_FAILURE() << "process " << launcher << " has started no process with RANK=" << rank;
  return 0;
}

std::string NewFolder() {
  std::string path = absl::StrCat(fs::canonical(::testing::TempDir()).string(), "/e2e_XXXXXX");
  ABSL_CHECK(mkdtemp(path.data()) != nullptr);
  return path;
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(folder, error)) {
    if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), folder));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> FilesOfRun(std::string_view folder, const std::vector<int>& epochs,
                                    const std::vector<std::string>& steps, std::string_view format) {
  const std::string in = folder.empty() ? "" : absl::StrCat(folder, "/");
  const bool is_pt = format == "pt";
  std::vector<std::string> names = {in + ".cohort-lock", in + "run.json"};
  for (const int epoch : epochs) {
    names.push_back(absl::StrCat(in, "model_epoch_", epoch, is_pt ? ".pth" : ".safetensors"));
  }
  for (const std::string& step : steps) {
    const size_t num_digits = std::min(step.find('-'), step.size());
    const std::string checkpoint = absl::StrCat(in, "step_", std::string(8 - num_digits, '0'), step);
    names.push_back(checkpoint + "/manifest.json");
    names.push_back(checkpoint + (is_pt ? "/state.pt" : "/state.safetensors"));
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

void WriteFile(const std::string& path, std::string_view content) { std::ofstream(path, std::ios::binary) << content; }

std::string PathIn(const char* variable) {
  const char* path = std::getenv(variable);
  ABSL_CHECK(path != nullptr) << variable;
  return fs::absolute(path);
}

}  // namespace cohort::testing
