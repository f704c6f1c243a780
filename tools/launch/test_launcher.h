// File: test_launcher.h
//
// The launcher as a child process of a test, with everything that a person at a terminal would see of it.

#ifndef COHORT_TOOLS_LAUNCH_TEST_LAUNCHER_H_
#define COHORT_TOOLS_LAUNCH_TEST_LAUNCHER_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "cohort/tools/launch/environment.h"

namespace cohort::launch {

// Waits until `condition` holds, and returns true; false after a minute, which only a broken program needs.
bool AwaitCondition(absl::FunctionRef<bool()> condition);

// A directory that is new for each test.
std::string NewDirectory();
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, std::string_view contents);

// What stands between the line ends of `text`, and after the last one.
std::vector<std::string> Lines(std::string_view text);
// The lines of `text`. Fails the test if the last one has no end.
std::vector<std::string> WholeLines(std::string_view text);

// Runs the launcher (the program that the variable LAUNCH names) once. Not thread-safe.
class TestLauncher {
 public:
  struct Result {
    // As a shell's $?: 128+N if a signal ended the launcher.
    int exit_code = -1;
    std::string out;
    std::string err;
  };

  struct Setup {
    // On top of the test's own environment, which is cleared of what a launcher sets.
    Environment environment = {};
    std::string stdin_path = "/dev/null";
    // If not -1, used in place of a file that is captured.
    int out_fd = -1;
    int err_fd = -1;
    // Put before the launcher's own command line.
    std::vector<std::string> wrapper = {};
    // Becomes standard input, and the controlling terminal of a new session.
    int terminal_fd = -1;
  };

  // `arguments` follow the launcher's name.
  explicit TestLauncher(std::vector<std::string> arguments) : TestLauncher(std::move(arguments), Setup()) {}
  TestLauncher(std::vector<std::string> arguments, const Setup& setup);
  // Kills whatever is left.
  ~TestLauncher();

  pid_t pid() const { return pid_; }
  void Signal(int signal);
  // As another process, so that it is not taken for a repetition.
  void SignalAgain(int signal);

  // What was printed so far.
  std::string out() const { return ReadFile(out_path_); }
  std::string err() const { return ReadFile(err_path_); }

  // Waits until standard output holds `text`: the evidence that a rank has got so far.
  bool AwaitOut(std::string_view text) const;
  bool AwaitErr(std::string_view text) const;

  // Waits until the launcher has ended; fails the test if it does not.
  Result Wait();

  // The live processes that descend from this launcher, itself included, wherever they have moved to: they have its
  // mark in their environment.
  std::vector<pid_t> LiveProcesses() const;

 private:
  std::optional<int> Reap();

  std::string mark_;
  std::string out_path_;
  std::string err_path_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

// TestLauncher(...).Wait()
TestLauncher::Result RunLauncher(std::vector<std::string> arguments, const TestLauncher::Setup& setup = {});

// The command line that starts `num_ranks` shells with `script`.
std::vector<std::string> Shells(int num_ranks, std::string script, std::vector<std::string> flags = {});

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_TEST_LAUNCHER_H_
