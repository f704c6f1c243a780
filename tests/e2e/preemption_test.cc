// The main job is told to stop by those who run it: all ranks stop after the same step, which is saved once, and the
// exit code says that the same command goes on.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kPreempted = 75;
constexpr int64_t kStepsAnEpoch = 32;

std::vector<std::string> Job(std::vector<std::string> flags, int num_ranks = 2) {
  flags.insert(flags.begin(), {PathIn("LAUNCH"), absl::StrCat("--nproc-per-node=", num_ranks), PathIn("LINEAR"),
                               "--data=generated", "--optimizer=adam", "--save_every=1000000000"});
  return flags;
}

std::vector<std::string> Endless(std::vector<std::string> more = {}) {
  more.push_back("--epochs=1000000000");
  return Job(std::move(more));
}

std::vector<std::string> LinesWith(std::string_view text, std::string_view part) {
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(text, '\n')) {
    if (absl::StrContains(line, part) && !absl::StartsWith(line, "launch: ")) lines.emplace_back(line);
  }
  return lines;
}

std::vector<std::string> CheckpointsIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (absl::StartsWith(entry.path().filename().string(), "step_")) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string CheckpointOf(int64_t step) { return absl::StrFormat("step_%08d", step); }

// The step after which the job says that it has stopped.
int64_t StoppedAfter(const Process::Result& result) {
  const std::vector<std::string> lines = LinesWith(result.out, "] stopped ");
  EXPECT_THAT(lines, ElementsAre(AllOf(HasSubstr("the same command goes on"), Not(HasSubstr("[1]"))))) << result.err;
  int64_t step = -1;
  for (const std::string& line : lines) {
    const std::string_view behind = std::string_view(line).substr(line.find(", step ") + 7);
    EXPECT_TRUE(absl::SimpleAtoi(behind.substr(0, behind.find(',')), &step)) << line;
  }
  return step;
}

// The job `stopped`, whose run is in `folder`/checkpoints, has stopped as it should, with one checkpoint of its last
// step; and going on from there for two epochs more ends with the bytes of a run that was never stopped.
void ExpectStoppedAndGoesOn(const Process::Result& stopped, const std::string& folder) {
  EXPECT_EQ(stopped.exit_code, kPreempted) << stopped.out << stopped.err;
  const int64_t step = StoppedAfter(stopped);
  ASSERT_GT(step, kStepsAnEpoch);
  EXPECT_EQ(CheckpointsIn(folder + "/checkpoints").back(), CheckpointOf(step));
  EXPECT_EQ(fs::read_symlink(folder + "/checkpoints/latest"), CheckpointOf(step));
  EXPECT_THAT(LinesWith(stopped.err, "error: "), IsEmpty());
  EXPECT_THAT(LinesWith(stopped.err, "warning: "), IsEmpty());

  const int64_t num_epochs = step / kStepsAnEpoch + 2;
  const std::string epochs = absl::StrCat("--epochs=", num_epochs);
  const Process::Result rest = RunToEnd(Job({epochs}), {.directory = folder});
  EXPECT_EQ(rest.exit_code, 0) << rest.err;
  EXPECT_THAT(LinesWith(rest.out, "] resumed "), ElementsAre(HasSubstr(absl::StrCat(", step ", step, "; "))));
  const Process::Result straight = RunToEnd(Job({epochs, "--checkpoint_dir=straight"}), {.directory = folder});
  EXPECT_EQ(straight.exit_code, 0) << straight.err;
  const std::string last = absl::StrCat("/", CheckpointOf(num_epochs * kStepsAnEpoch), "/state.pt");
  const std::string expected = ReadFile(folder + "/straight" + last);
  EXPECT_THAT(expected, Not(IsEmpty()));
  EXPECT_TRUE(ReadFile(folder + "/checkpoints" + last) == expected) << "not bit for bit the run that never stopped";
}

// An endless job in `folder`, in the midst of its epochs.
#define COHORT_RUNNING_JOB(job, folder)          \
  const std::string folder = NewFolder();        \
  Process job(Endless(), {.directory = folder}); \
  ASSERT_TRUE(job.WaitForOutput("epoch 3 "))

TEST(PreemptionTest, ATermOfTheLauncherStopsAllRanksAfterOneStep) {
  COHORT_RUNNING_JOB(job, folder);
  ASSERT_EQ(kill(job.pid(), SIGTERM), 0);
  ExpectStoppedAndGoesOn(job.Wait(), folder);
  EXPECT_THAT(CheckpointsIn(folder + "/checkpoints"), Contains(CheckpointOf(kStepsAnEpoch)));
}

TEST(PreemptionTest, AUsr1OfTheLauncherStopsThemToo) {
  COHORT_RUNNING_JOB(job, folder);
  ASSERT_EQ(kill(job.pid(), SIGUSR1), 0);
  ExpectStoppedAndGoesOn(job.Wait(), folder);
}

TEST(PreemptionTest, OneRankAloneStopsAll) {
  for (const auto& [rank, signal] : {std::pair(1, SIGTERM), std::pair(0, SIGUSR1)}) {
    SCOPED_TRACE(absl::StrCat("signal ", signal, " to rank ", rank));
    COHORT_RUNNING_JOB(job, folder);
    const pid_t pid = PidOfRank(job.pid(), rank);
    ASSERT_NE(pid, 0);
    ASSERT_EQ(kill(pid, signal), 0);
    ExpectStoppedAndGoesOn(job.Wait(), folder);
  }
}

TEST(PreemptionTest, ASecondSignalDamagesNothing) {
  COHORT_RUNNING_JOB(job, folder);
  for (const int signal : {SIGTERM, SIGUSR1, SIGTERM, SIGTERM}) ASSERT_EQ(kill(job.pid(), signal), 0);
  ExpectStoppedAndGoesOn(job.Wait(), folder);
}

// A job whose main rank waits before the rename to `name` until the FIFO is opened.
class PausedJob {
 public:
  PausedJob(const std::string& name, std::vector<std::string> command, const std::string& folder)
      : fifo_(NewFolder() + "/fifo"), job_(std::move(command), {.environment = Pause(name), .directory = folder}) {}

  Process& process() { return job_; }
  bool WaitUntilPaused() { return job_.WaitForOutput("paused\n"); }
  void GoOn() {
    const int opened = open(fifo_.c_str(), O_WRONLY);
    ASSERT_GE(opened, 0);
    close(opened);
  }

 private:
  std::map<std::string, std::string> Pause(const std::string& name) {
    ABSL_CHECK_EQ(mkfifo(fifo_.c_str(), 0600), 0);
    return {{"LD_PRELOAD", PathIn("PAUSE_RENAME")}, {"PAUSE_RENAME_TO", name}, {"PAUSE_UNTIL", fifo_}};
  }

  const std::string fifo_;
  Process job_;
};

TEST(PreemptionTest, InTheMidstOfASaveThatIsFinishedFirst) {
  const std::string folder = NewFolder();
  PausedJob job(CheckpointOf(64), Endless({"--save_every_steps=64"}), folder);
  ASSERT_TRUE(job.WaitUntilPaused());
  ASSERT_EQ(kill(job.process().pid(), SIGTERM), 0);
  ASSERT_EQ(kill(job.process().pid(), SIGTERM), 0);
  job.GoOn();
  ExpectStoppedAndGoesOn(job.process().Wait(), folder);
  EXPECT_THAT(CheckpointsIn(folder + "/checkpoints"), Contains(CheckpointOf(64)));
}

TEST(PreemptionTest, AfterTheLastStepTheRunIsComplete) {
  const std::string folder = NewFolder();
  PausedJob job(CheckpointOf(kStepsAnEpoch), Job({"--epochs=1"}), folder);
  ASSERT_TRUE(job.WaitUntilPaused());
  for (const int rank : {0, 1}) {
    const pid_t pid = PidOfRank(job.process().pid(), rank);
    ASSERT_NE(pid, 0);
    ASSERT_EQ(kill(pid, SIGTERM), 0);
  }
  job.GoOn();
  const Process::Result result = job.process().Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(LinesWith(result.out, "] stopped "), IsEmpty());
  const Process::Result again = RunToEnd(Job({"--epochs=1"}), {.directory = folder});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(LinesWith(again.out, "] already complete"), SizeIs(1));
}

}  // namespace
}  // namespace cohort::testing
