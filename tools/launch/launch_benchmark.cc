// What the launcher costs.
//
// LaunchTrue: N x /bin/true under it, against plain fork and exec of the same, turn by turn in one run.
// Limit: `ratio` at most 3, which was 8 ms for 2 ranks and 12 ms for 8 where it was set.
//
// Print: its own processor time, without that of the ranks, for what 4 ranks print together, by the length of a line,
// on the console alone and into files as well; `cores_at_100MBps` is how busy it is when they print 100 MB/s. Limit: 1.

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
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

// The processor time of a process so far, without that of its children; 0 if it has gone.
double OwnSeconds(pid_t pid) {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// That of both processes of a launcher, once it has ended. What the one that looks after the ranks uses in its last
// millisecond is not seen.
double LauncherSeconds(pid_t front) {
  const std::string children = absl::StrCat("/proc/", front, "/task/", front, "/children");
  double supervisor_seconds = 0;
  for (siginfo_t end = {}; end.si_pid == 0 && waitid(P_PID, front, &end, WEXITED | WNOWAIT | WNOHANG) == 0;) {
    pid_t supervisor = 0;
    if (std::ifstream(children) >> supervisor)
      supervisor_seconds = std::max(supervisor_seconds, OwnSeconds(supervisor));
    usleep(1000);
  }
  return supervisor_seconds + OwnSeconds(front);
}

void BM_Print(benchmark::State& state) {
  constexpr int kRanks = 4;
  constexpr int64_t kBytesPerRank = 50'000'000;
  const std::string line(state.range(0) - 1, 'x');
  const char* const tee = state.range(1) != 0 ? "--tee=3" : "--tee=0";
  std::string logs = absl::StrCat(std::filesystem::temp_directory_path().string(), "/launch_benchmark_XXXXXX");
  if (mkdtemp(logs.data()) == nullptr) return state.SkipWithError("no temporary directory");
  double own = 0;
  for (auto _ : state) {
    const pid_t launcher =
        Start({kLauncher, absl::StrCat("--nproc-per-node=", kRanks), tee, absl::StrCat("--log-dir=", logs), "/bin/sh",
               "-c", absl::StrCat("yes ", line, " | head -c ", kBytesPerRank)},
              "/dev/null");
    own += LauncherSeconds(launcher);
    if (!Succeeds(launcher)) return state.SkipWithError("the launcher did not end with 0");
  }
  std::filesystem::remove_all(logs);
  const double megabytes = 1e-6 * kRanks * kBytesPerRank * static_cast<double>(state.iterations());
  state.counters["cores_at_100MBps"] = own / megabytes * 100;
  state.SetBytesProcessed(kRanks * kBytesPerRank * state.iterations());
}
BENCHMARK(BM_Print)
    ->ArgsProduct({{10, 100, 1000}, {0, 1}})
    ->ArgNames({"line", "tee"})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
