// File: process.h
//
// Process: a program as a person runs it, from a test: its command line, environment, output and exit code.

#ifndef COHORT_TESTS_E2E_PROCESS_H_
#define COHORT_TESTS_E2E_PROCESS_H_

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::testing {

// A running program. Everything fails the test, loudly and with the program's output, instead of waiting for ever: the
// longest that anything waits is kPatienceSeconds. What is still running when a Process dies is killed. Not
// thread-safe.
class Process {
 public:
  struct Setup {
    // Set on top of PATH and TEST_TMPDIR; nothing else is passed on.
    std::map<std::string, std::string> environment;
    // Instead: nothing at all is set but `environment`.
    bool empty_environment = false;
    // Where it is started; empty: here.
    std::string directory;
  };

  // How it ended, as a shell's $? shows it (128 + N for signal N), and what it wrote.
  struct Result {
    int exit_code = -1;
    std::string out;
    std::string err;
  };

  static constexpr int kPatienceSeconds = 120;

  Process(std::vector<std::string> command, const Setup& setup);
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process();

  pid_t pid() const { return pid_; }

  // Waits until stdout holds `text`. False, and a test failure, if the program ends or patience does before.
  bool WaitForOutput(std::string_view text);

  // Waits for the end.
  Result Wait();

 private:
  // Reads what comes. False at the end of both streams, or of patience.
  bool Read(double deadline);

  std::string shown_;  // the command
  pid_t pid_ = -1;
  int fds_[2] = {-1, -1};  // stdout, stderr
  std::string text_[2];
};

// Starts `command` and waits for its end.
Process::Result RunToEnd(std::vector<std::string> command, const Process::Setup& setup = {});

// The pid of the rank that `launcher` started as `rank`, told by its environment. 0 and a test failure if there is
// none.
pid_t PidOfRank(pid_t launcher, int rank);

// A folder of this test's own, new and empty; absolute.
std::string NewFolder();

// The names of the files below `folder`, "sub/name", sorted. Empty if there is no such folder.
std::vector<std::string> FilesIn(const std::string& folder);

// What FilesIn lists of a run of //trainers:linear in `folder`, "" for FilesIn's own: model_epoch_E for each of
// `epochs`, and a checkpoint for each of `steps`: "14", or "14-2" for the second one of that step.
std::vector<std::string> FilesOfRun(std::string_view folder, const std::vector<int>& epochs,
                                    const std::vector<std::string>& steps, std::string_view format = "pt");

std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, std::string_view content);

// The absolute path of the program or file whose rootpath the environment variable `variable` holds.
std::string PathIn(const char* variable);

}  // namespace cohort::testing

#endif  // COHORT_TESTS_E2E_PROCESS_H_
