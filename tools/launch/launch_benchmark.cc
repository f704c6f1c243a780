// What the launcher costs.
//
// LaunchTrue: N x /bin/true under it, against plain fork and exec of the same, turn by turn in one run.
// Limit: `ratio` of 2 x /bin/true at most 4.
//
// Print: its own processor time, without that of the ranks, for what 4 ranks print together, by the length of a line;
// `cores_at_100MBps` is how busy it is when they print 100 MB/s. Limit: 1.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmark/benchmark.h"

namespace {

using Seconds = std::chrono::duration<double>;

// In the runfiles, where `bazel run` and tests start programs.
constexpr const char kLauncher[] = "tools/launch/launch";

// Starts `command`, with its standard output in the file `out` unless that is nullptr.
pid_t Start(std::vector<std::string> command, const char* out = nullptr) {
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) {
    if (out != nullptr && dup2(open(out, O_WRONLY), STDOUT_FILENO) < 0) _exit(127);
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

// The processor time of a child that has ended and was not waited for yet. Unlike what wait4() tells, it does not hold
// that of the child's own children.
double OwnSeconds(pid_t child) {
  siginfo_t unused;
  if (waitid(P_PID, child, &unused, WEXITED | WNOWAIT) != 0) return -1;
  std::ifstream file(absl::StrCat("/proc/", child, "/stat"));
  const std::string stat(std::istreambuf_iterator<char>(file), {});
  unsigned long user = 0, system = 0;
  const size_t after_name = stat.rfind(')');
  if (after_name == std::string::npos ||
      sscanf(stat.c_str() + after_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2) {
    return -1;
  }
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void BM_Print(benchmark::State& state) {
  constexpr int kRanks = 4;
  constexpr int64_t kBytesPerRank = 50'000'000;
  const std::string line(state.range(0) - 1, 'x');
  double own = 0;
  for (auto _ : state) {
    const pid_t launcher = Start({kLauncher, absl::StrCat("--nproc-per-node=", kRanks), "/bin/sh", "-c",
                                  absl::StrCat("yes ", line, " | head -c ", kBytesPerRank)},
                                 "/dev/null");
    own += OwnSeconds(launcher);
    if (!Succeeds(launcher)) return state.SkipWithError("the launcher did not end with 0");
  }
  const double megabytes = 1e-6 * kRanks * kBytesPerRank * static_cast<double>(state.iterations());
  state.counters["cores_at_100MBps"] = own / megabytes * 100;
  state.SetBytesProcessed(kRanks * kBytesPerRank * state.iterations());
}
BENCHMARK(BM_Print)->Arg(10)->Arg(100)->Arg(1000)->UseRealTime()->Unit(benchmark::kMillisecond);

}  // namespace
