// A rank of the main job is killed: how the others end, what they say, and what is left on the disk.

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int kUnavailable = 69;

// Trains until somebody ends it, and saves after epoch 0 only.
const std::vector<std::string>& Endless() {
  static const auto* const flags = new std::vector<std::string>{"--data=generated", "--epochs=1000000000",
                                                                "--save_every=1000000000", "--backend=gloo"};
  return *flags;
}

// The ranks of a job without a launcher, which would stop the survivors before they can speak.
class Ranks {
 public:
  Ranks(int num_ranks, const std::vector<std::string>& flags, const std::string& directory,
        const std::map<std::string, std::string>& environment_of_main = {}) {
    ReservePort();
    for (int rank = 0; rank < num_ranks; ++rank) {
      Process::Setup setup = {.environment = {{"RANK", absl::StrCat(rank)},
                                              {"WORLD_SIZE", absl::StrCat(num_ranks)},
                                              {"LOCAL_RANK", absl::StrCat(rank)},
                                              {"LOCAL_WORLD_SIZE", absl::StrCat(num_ranks)},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", absl::StrCat(port_)},
                                              {"OMP_NUM_THREADS", "1"}},
                              .directory = directory};
      if (rank == 0) setup.environment.insert(environment_of_main.begin(), environment_of_main.end());
      std::vector<std::string> command = {PathIn("LINEAR")};
      command.insert(command.end(), flags.begin(), flags.end());
      ranks_.push_back(std::make_unique<Process>(command, setup));
    }
  }
  ~Ranks() { close(socket_); }

  Process& operator[](int rank) { return *ranks_[rank]; }

  // Kills `killed`; every other rank must end by itself with the code that means "another rank died", and name it.
  void KillAndExpectSurvivorsToNameIt(int killed) {
    ABSL_CHECK_EQ(kill(ranks_[killed]->pid(), SIGKILL), 0);
    EXPECT_EQ(ranks_[killed]->Wait().exit_code, 128 + SIGKILL);
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      if (rank == killed) continue;
      SCOPED_TRACE(absl::StrCat("survivor ", rank));
      const Process::Result result = ranks_[rank]->Wait();
      EXPECT_EQ(result.exit_code, kUnavailable);
      EXPECT_THAT(result.err, ContainsRegex(absl::StrCat("error: rank ", killed, " .*is gone")));
    }
  }

 private:
  // A port that nobody else is given, and that rank 0 can still listen on: bound with SO_REUSEADDR, and never
  // listening.
  void ReservePort() {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ABSL_CHECK_EQ(setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof(address);
    ABSL_CHECK_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    ABSL_CHECK_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }

  int socket_ = -1;
  int port_ = 0;
  std::vector<std::unique_ptr<Process>> ranks_;
};

TEST(KilledRankTest, InMidEpochUnderTheLauncherEndsTheJobAndKeepsTheCheckpoint) {
  const std::string folder = NewFolder();
  std::vector<std::string> command = {PathIn("LAUNCH"), "--nproc-per-node=4", PathIn("LINEAR")};
  command.insert(command.end(), Endless().begin(), Endless().end());
  Process job(command, {.directory = folder});
  // Epoch 3 is over and the next one has begun.
  ASSERT_TRUE(job.WaitForOutput("epoch 3 "));
  const std::string saved = ReadFile(folder + "/checkpoints/model_epoch_0.pth");
  ASSERT_THAT(saved, Not(IsEmpty()));
  const pid_t pid = PidOfRank(job.pid(), 2);
  ASSERT_NE(pid, 0);
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  const Process::Result result = job.Wait();
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
  EXPECT_THAT(result.err, HasSubstr(absl::StrCat("rank 2 (pid ", pid, ") failed")));
  EXPECT_THAT(result.err, HasSubstr("SIGKILL"));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0}, {"32"})));
  EXPECT_EQ(ReadFile(folder + "/checkpoints/model_epoch_0.pth"), saved);
}

TEST(KilledRankTest, InMidEpochIsNamedByEverySurvivor) {
  for (const int killed : {1, 0}) {
    SCOPED_TRACE(absl::StrCat("killed: ", killed));
    Ranks ranks(3, Endless(), NewFolder());
    ASSERT_TRUE(ranks[0].WaitForOutput("epoch 3 "));
    ranks.KillAndExpectSurvivorsToNameIt(killed);
  }
}

// Main rank's environment: stops it before the rename to `name`, until the FIFO is opened.
std::map<std::string, std::string> PausedInSaveOf(const std::string& name, const std::string& fifo) {
  ABSL_CHECK_EQ(mkfifo(fifo.c_str(), 0600), 0);
  return {{"LD_PRELOAD", PathIn("PAUSE_RENAME")}, {"PAUSE_RENAME_TO", name}, {"PAUSE_UNTIL", fifo}};
}

TEST(KilledRankTest, TheMainRankInMidSaveLeavesTheOldCheckpointsWhole) {
  const std::string folder = NewFolder();
  const std::string saved_before = folder + "/checkpoints/model_epoch_5.pth";
  // An earlier run has saved epoch 5, with another seed.
  ASSERT_EQ(RunToEnd({PathIn("LINEAR"), "--seed=1", "--epochs=6"}, {.directory = folder}).exit_code, 0);
  const std::string old_content = ReadFile(saved_before);
  ASSERT_THAT(old_content, Not(IsEmpty()));

  Ranks ranks(3, {"--backend=gloo", "--resume=none"}, folder,
              PausedInSaveOf("model_epoch_5.pth", NewFolder() + "/fifo"));
  ASSERT_TRUE(ranks[0].WaitForOutput("paused\n"));
  ranks.KillAndExpectSurvivorsToNameIt(0);
  EXPECT_EQ(ReadFile(saved_before), old_content);

  // The next run saves there, and clears up what was left.
  ASSERT_EQ(RunToEnd({PathIn("LINEAR"), "--resume=none"}, {.directory = folder}).exit_code, 0);
  EXPECT_NE(ReadFile(saved_before), old_content);
  EXPECT_THAT(FilesIn(folder),
              ElementsAreArray(FilesOfRun("checkpoints", {0, 5, 9}, {"14", "84", "14-2", "14-3", "84-2", "140"})));
}

TEST(KilledRankTest, TheMainRankInMidCheckpointLeavesTheOneBeforeToGoOnFrom) {
  const std::string folder = NewFolder();
  Ranks ranks(3, {"--backend=gloo"}, folder, PausedInSaveOf("step_00000084", NewFolder() + "/fifo"));
  ASSERT_TRUE(ranks[0].WaitForOutput("paused\n"));
  ranks.KillAndExpectSurvivorsToNameIt(0);
  EXPECT_TRUE(std::filesystem::exists(folder + "/checkpoints/step_00000014"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/checkpoints/step_00000084"));
  EXPECT_EQ(std::filesystem::read_symlink(folder + "/checkpoints/latest"), "step_00000014");

  // The next run clears up what was left.
  const Process::Result next =
      RunToEnd({PathIn("LAUNCH"), "--nproc-per-node=3", PathIn("LINEAR")}, {.directory = folder});
  EXPECT_EQ(next.exit_code, 0) << next.err;
  EXPECT_THAT(next.out, HasSubstr("/checkpoints/step_00000014  after epoch 0, step 14; "));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 5, 9}, {"14", "84", "140"})));
}

TEST(KilledRankTest, AnotherRankInMidSaveIsNamedAndTheSaveIsWhole) {
  const std::string folder = NewFolder(), fifo = NewFolder() + "/fifo";
  Ranks ranks(3, {"--backend=gloo"}, folder, PausedInSaveOf("model_epoch_5.pth", fifo));
  ASSERT_TRUE(ranks[0].WaitForOutput("paused\n"));
  ASSERT_EQ(kill(ranks[2].pid(), SIGKILL), 0);
  EXPECT_EQ(ranks[2].Wait().exit_code, 128 + SIGKILL);
  // Rank 1 hears of it while the main rank is still writing.
  const Process::Result waiting = ranks[1].Wait();
  EXPECT_EQ(waiting.exit_code, kUnavailable);
  EXPECT_THAT(waiting.err, HasSubstr("rank 2"));
  const int go_on = open(fifo.c_str(), O_WRONLY);
  ASSERT_GE(go_on, 0);
  close(go_on);
  const Process::Result writing = ranks[0].Wait();
  EXPECT_EQ(writing.exit_code, kUnavailable);
  EXPECT_THAT(writing.err, HasSubstr("rank 2"));
  EXPECT_THAT(FilesIn(folder), ElementsAreArray(FilesOfRun("checkpoints", {0, 5}, {"14"})));
}

}  // namespace
}  // namespace cohort::testing
