#include "cohort/tools/launch/test_launcher.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);
constexpr const char kMarkName[] = "COHORT_TEST_LAUNCHER";

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& string : strings) pointers.push_back(const_cast<char*>(string.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

int OpenOrDie(const std::string& path, int flags) {
  const int fd = open(path.c_str(), flags, 0600);
  ABSL_CHECK_GE(fd, 0) << path;
  return fd;
}

// The test may itself have been started by a launcher, or by a person with a preference.
Environment CleanEnvironment() {
  Environment environment = ReadEnvironment(environ);
  JobPlan plan;
  plan.nproc_per_node = 2;
  for (const auto& [name, value] : RankEnvironment(plan, 0, {})) environment.erase(name);
  environment.erase("COHORT_LAUNCH_GRACE");
  return environment;
}

}  // namespace

bool AwaitCondition(absl::FunctionRef<bool()> condition) {
  const absl::Time deadline = absl::Now() + kPatience;
  while (!condition()) {
    if (absl::Now() > deadline) return false;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return true;
}

std::string NewDirectory() {
  std::string path = absl::StrCat(testing::TempDir(), "/launch_XXXXXX");
  ABSL_CHECK(mkdtemp(path.data()) != nullptr) << path;
  return path;
}

std::string ReadFile(const std::string& path) {
  std::ostringstream contents;
  contents << std::ifstream(path, std::ios::binary).rdbuf();
  return contents.str();
}

void WriteFile(const std::string& path, std::string_view contents) {
  std::ofstream file(path, std::ios::binary);
  file << contents;
  ABSL_CHECK(file.flush()) << path;
}

std::vector<std::string> Lines(std::string_view text) { return absl::StrSplit(text, '\n'); }

std::vector<std::string> WholeLines(std::string_view text) {
  std::vector<std::string> lines = Lines(text);
  EXPECT_EQ(lines.back(), "") << "the last line is not whole";
  lines.pop_back();
  return lines;
}

TestLauncher::TestLauncher(std::vector<std::string> arguments, const Setup& setup) {
  const std::string directory = NewDirectory();
  mark_ = directory;
  out_path_ = absl::StrCat(directory, "/out");
  err_path_ = absl::StrCat(directory, "/err");

  const char* launcher = getenv("LAUNCH");
  ABSL_CHECK(launcher != nullptr) << "LAUNCH must name the launcher";
  std::vector<std::string> command = setup.wrapper;
  command.push_back(launcher);
  command.insert(command.end(), arguments.begin(), arguments.end());

  Environment environment = CleanEnvironment();
  for (const auto& [name, value] : setup.environment) environment[name] = value;
  environment[kMarkName] = mark_;
  const std::vector<std::string> entries = EnvironmentEntries(environment);

  const std::vector<char*> argument_pointers = Pointers(command);
  const std::vector<char*> entry_pointers = Pointers(entries);
  constexpr int kCreate = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  const int in = setup.terminal_fd >= 0 ? setup.terminal_fd : OpenOrDie(setup.stdin_path, O_RDONLY | O_CLOEXEC);
  const int out = setup.out_fd >= 0 ? setup.out_fd : OpenOrDie(out_path_, kCreate);
  const int err = setup.err_fd >= 0 ? setup.err_fd : OpenOrDie(err_path_, kCreate);
  pid_ = fork();
  ABSL_CHECK_GE(pid_, 0);
  if (pid_ == 0) {
    if (setup.terminal_fd >= 0 && (setsid() < 0 || ioctl(in, TIOCSCTTY, 0) != 0)) _exit(99);
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(99);
    execvpe(argument_pointers[0], argument_pointers.data(), entry_pointers.data());
    _exit(99);
  }
  if (setup.terminal_fd < 0) close(in);
  if (setup.out_fd < 0) close(out);
  if (setup.err_fd < 0) close(err);
}

TestLauncher::~TestLauncher() {
  for (const pid_t pid : LiveProcesses()) kill(pid, SIGKILL);
  if (!exit_code_.has_value()) waitpid(pid_, nullptr, 0);
}

void TestLauncher::Signal(int signal) { ABSL_CHECK_EQ(kill(pid_, signal), 0); }

void TestLauncher::SignalAgain(int signal) {
  const pid_t sender = fork();
  if (sender == 0) _exit(kill(pid_, signal) == 0 ? 0 : 1);
  int status = 0;
  ABSL_CHECK_EQ(waitpid(sender, &status, 0), sender);
  ABSL_CHECK_EQ(status, 0);
}

bool TestLauncher::AwaitOut(std::string_view text) const {
  return AwaitCondition([&] { return absl::StrContains(out(), text); });
}

bool TestLauncher::AwaitErr(std::string_view text) const {
  return AwaitCondition([&] { return absl::StrContains(err(), text); });
}

std::optional<int> TestLauncher::Reap() {
  int status;
  if (!exit_code_.has_value() && waitpid(pid_, &status, WNOHANG) == pid_) {
    exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return exit_code_;
}

TestLauncher::Result TestLauncher::Wait() {
  EXPECT_TRUE(AwaitCondition([&] { return Reap().has_value(); })) << "the launcher does not end; it printed\n" << err();
  return {.exit_code = exit_code_.value_or(-1), .out = out(), .err = err()};
}

std::vector<pid_t> TestLauncher::LiveProcesses() const {
  std::vector<pid_t> pids;
  DIR* const proc = opendir("/proc");
  ABSL_CHECK(proc != nullptr);
  const std::string entry = absl::StrCat(kMarkName, "=", mark_, std::string(1, '\0'));
  while (const dirent* const process = readdir(proc)) {
    int pid;
    if (!absl::SimpleAtoi(process->d_name, &pid)) continue;
    // A zombie has no environment any more.
    if (absl::StrContains(ReadFile(absl::StrCat("/proc/", pid, "/environ")), entry)) pids.push_back(pid);
  }
  closedir(proc);
  return pids;
}

TestLauncher::Result RunLauncher(std::vector<std::string> arguments, const TestLauncher::Setup& setup) {
  return TestLauncher(std::move(arguments), setup).Wait();
}

std::vector<std::string> Shells(int num_ranks, std::string script, std::vector<std::string> flags) {
  std::vector<std::string> arguments = std::move(flags);
  arguments.push_back(absl::StrCat("--nproc-per-node=", num_ranks));
  for (const char* word : {"sh", "-c"}) arguments.push_back(word);
  arguments.push_back(std::move(script));
  return arguments;
}

}  // namespace cohort::launch
