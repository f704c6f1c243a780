// File: scripted_job.h
//
// ScriptedJob: real processes as ranks, each of which follows a script, for tests of what happens when they die,
// freeze, come late or not at all. A launcher would be in the way: it ends the job when a rank fails.

#ifndef COHORT_RUNTIME_TESTING_SCRIPTED_JOB_H_
#define COHORT_RUNTIME_TESTING_SCRIPTED_JOB_H_

#include <sys/types.h>

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace cohort::testing {

// What a rank reported of one step of its script.
struct StepReport {
  std::string step;
  std::string code;  // "OK", "UNAVAILABLE", ...
  absl::Duration took;
  std::string text;  // the error's, or the result
};

inline void PrintTo(const StepReport& report, std::ostream* out) {
  *out << report.step << " " << report.code << " after " << report.took << " " << report.text;
}

// A process that runs //runtime/testing:rank_script. Move-only; what still runs at the end is killed.
class ScriptedRank {
 public:
  using Environment = std::map<std::string, std::string>;

  // `environment` is all that the process gets. `name` is that of its output files below TEST_TMPDIR.
  ScriptedRank(std::string name, const Environment& environment, const std::vector<std::string>& steps);
  ScriptedRank(ScriptedRank&& other) noexcept;
  ~ScriptedRank();

  pid_t pid() const { return pid_; }

  // All reports so far.
  std::vector<StepReport> Reports() const;

  // Blocks until the rank has reported `num_steps` steps or ended; fails the test after a minute.
  std::vector<StepReport> AwaitSteps(size_t num_steps);

  // Blocks until the process has ended, and returns all reports. Fails the test after a minute.
  std::vector<StepReport> AwaitEnd();

  // After AwaitEnd: the exit code, or minus the signal that ended it.
  int exit_code() const { return exit_code_; }

  // What it wrote to stderr.
  std::string Errors() const;

 private:
  bool HasEnded();

  std::string name_;
  pid_t pid_ = -1;  // -1 once it has been waited for
  int exit_code_ = 0;
};

// The launcher's part: a port, and torchrun's variables.
class ScriptedJob {
 public:
  // Reserves a port of loopback as the launcher does: bound, and never listening.
  explicit ScriptedJob(int world_size, std::string master_addr = "127.0.0.1");
  ~ScriptedJob();

  ScriptedJob(const ScriptedJob&) = delete;
  ScriptedJob& operator=(const ScriptedJob&) = delete;

  int port() const { return port_; }

  // The variables of one rank, on one node with all others.
  ScriptedRank::Environment EnvironmentOf(int rank) const;

  // Starts a rank. `changes` go on top of EnvironmentOf; an empty value removes a variable.
  ScriptedRank Start(int rank, const std::vector<std::string>& steps, const ScriptedRank::Environment& changes = {});

 private:
  const int world_size_;
  const std::string master_addr_;
  int reservation_ = -1;
  int port_ = 0;
  int num_started_ = 0;
};

// Path of a file that is part of the test's runfiles, given relative to the repository.
std::string Runfile(const std::string& path);

// A path below TEST_TMPDIR that nobody else gets.
std::string NewPath(const std::string& name);
std::string ReadFile(const std::string& path);

// Makes a rank go on that is in the step `await=PATH`.
void GiveSign(const std::string& path);

// Blocks until `condition` holds; fails the test after a minute.
void AwaitThat(absl::FunctionRef<bool()> condition);

}  // namespace cohort::testing

#endif  // COHORT_RUNTIME_TESTING_SCRIPTED_JOB_H_
