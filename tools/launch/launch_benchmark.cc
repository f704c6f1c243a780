// What the launcher costs: N x /bin/true under it, against plain fork and exec of the same, turn by turn in one run.
//
// Limit: `ratio` of 2 x /bin/true at most 4.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"

namespace {

using Seconds = std::chrono::duration<double>;

// In the runfiles, where `bazel run` and tests start programs.
constexpr const char kLauncher[] = "tools/launch/launch";

pid_t Start(std::vector<std::string> command) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  return pid;
}

bool Succeeds(pid_t pid) {
  int status = 0;
  return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void BM_LaunchTrue(benchmark::State& state) {
  const int num_ranks = static_cast<int>(state.range(0));
  std::vector<double> plain_times, launch_times;
  for (auto _ : state) {
    bool ok = true;
    const auto start = std::chrono::steady_clock::now();
    std::vector<pid_t> pids;
    for (int i = 0; i < num_ranks; ++i) pids.push_back(Start({"/bin/true"}));
    for (const pid_t pid : pids) ok = Succeeds(pid) && ok;
    const auto middle = std::chrono::steady_clock::now();
    ok = Succeeds(Start({kLauncher, absl::StrCat("--nproc-per-node=", num_ranks), "/bin/true"})) && ok;
    const auto end = std::chrono::steady_clock::now();
    if (!ok) return state.SkipWithError("a process did not end with 0");
    plain_times.push_back(Seconds(middle - start).count());
    launch_times.push_back(Seconds(end - middle).count());
    state.SetIterationTime(launch_times.back());
  }
  state.counters["plain_ms"] = Median(plain_times) * 1e3;
  state.counters["launch_ms"] = Median(launch_times) * 1e3;
  state.counters["ratio"] = Median(launch_times) / Median(plain_times);
}
BENCHMARK(BM_LaunchTrue)->Arg(2)->Arg(8)->Arg(64)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace
