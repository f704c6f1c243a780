// Several launchers that are to make one job, and disagree: one clear line from each rank that cannot take part, and
// nobody is left waiting. What the agreeing ones do is in //tools/launch:launch_test and in the trainers' tests.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <vector>

#include "absl/log/absl_check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/tests/e2e/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Nobody else is on this loopback: the test has a network of its own.
int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  ABSL_CHECK_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  ABSL_CHECK_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// A server that nobody gets an answer from, at a port that a launcher may hold.
int ListenAt(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  const int on = 1;
  ABSL_CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
  ABSL_CHECK_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ABSL_CHECK_EQ(listen(fd, 8), 0);
  return fd;
}

// What ranks said, without the launcher's report, which quotes them.
std::vector<std::string> Errors(std::string_view err) {
  std::vector<std::string> lines;
  for (const std::string_view line : absl::StrSplit(err, '\n')) {
    if (absl::StrContains(line, "error: ") && !absl::StartsWith(line, "launch: ")) lines.emplace_back(line);
  }
  return lines;
}

bool HasEnded(const Process& process) {
  siginfo_t info = {};
  return waitid(P_PID, process.pid(), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == process.pid();
}

class TwoNodesTest : public ::testing::Test {
 protected:
  // The launcher of a node. The ranks have one folder, as on a shared disk.
  std::vector<std::string> Node(int nnodes, int node_rank, int nproc_per_node = 1) {
    return {PathIn("LAUNCH"),
            absl::StrCat("--nnodes=", nnodes),
            absl::StrCat("--node-rank=", node_rank),
            absl::StrCat("--nproc-per-node=", nproc_per_node),
            absl::StrCat("--rdzv-endpoint=127.0.0.1:", port_),
            PathIn("LINEAR"),
            "--epochs=1"};
  }

  // Waits until one of the two, which nobody can tell beforehand, has ended; returns it, and the other.
  static std::pair<Process*, Process*> FirstToEnd(Process& one, Process& other) {
    const absl::Time deadline = absl::Now() + absl::Seconds(Process::kPatienceSeconds);
    while (!HasEnded(one) && !HasEnded(other) && absl::Now() < deadline) absl::SleepFor(absl::Milliseconds(5));
    return HasEnded(one) ? std::pair(&one, &other) : std::pair(&other, &one);
  }

  const int port_ = FreePort();
  const Process::Setup setup_ = {.directory = NewFolder()};
};

TEST_F(TwoNodesTest, WorldSizesThatDisagreeAreToldOnBothAndEndBoth) {
  Process first(Node(/*nnodes=*/2, /*node_rank=*/0, /*nproc_per_node=*/1), setup_);
  Process second(Node(/*nnodes=*/3, /*node_rank=*/1, /*nproc_per_node=*/1), setup_);
  for (Process* node : {&first, &second}) {
    const Process::Result result = node->Wait();
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr("rank 1 was told a world size of 3, rank 0 one of 2")));
  }
}

TEST_F(TwoNodesTest, UnequalNumbersOfRanksAreToldOnBothAndEndBoth) {
  Process first(Node(2, 0, /*nproc_per_node=*/1), setup_);
  Process second(Node(2, 1, /*nproc_per_node=*/2), setup_);
  EXPECT_EQ(first.Wait().exit_code, 1);
  const Process::Result result = second.Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("was told a world size of 4, rank 0 one of 2"));
}

TEST_F(TwoNodesTest, OfTwoFirstNodesOneFindsThePortInUseAndTheOtherGoesOn) {
  Process one(Node(2, 0), setup_);
  Process other(Node(2, 0), setup_);
  const auto [refused, taken] = FirstToEnd(one, other);
  const Process::Result result = refused->Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr("the port is in use")));
  Process second(Node(2, 1), setup_);
  EXPECT_EQ(second.Wait().exit_code, 0);
  EXPECT_EQ(taken->Wait().exit_code, 0);
}

// As when two jobs start at once: neither launcher finds anybody at the port that both were given.
TEST_F(TwoNodesTest, APortThatIsTakenAfterTheLaunchIsTheRootCauseAndTheWayOutIsSaid) {
  Process job({PathIn("LAUNCH"), "--nproc-per-node=2", absl::StrCat("--master-port=", port_), "sh", "-c",
               "echo up; while [ ! -e go ]; do sleep 0.01; done; exec \"$0\" --epochs=1", PathIn("LINEAR")},
              setup_);
  ASSERT_TRUE(job.WaitForOutput("[0] up"));
  const int squatter = ListenAt(port_);
  WriteFile(absl::StrCat(setup_.directory, "/go"), "");
  const Process::Result result = job.Wait();
  close(squatter);
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, ContainsRegex(absl::StrCat(
                              "launch: rank 0 [^\n]* failed first[^\n]*\nlaunch: its error:\nlaunch:   ALREADY_EXISTS: "
                              "[^\n]*127.0.0.1:",
                              port_, "[^\n]*the port is in use[^\n]*--master-port, chooses another")));
}

TEST_F(TwoNodesTest, OfTwoWithOneNumberOneIsRefusedAndTheOtherGoesOn) {
  Process first(Node(3, 0), setup_);
  Process one(Node(3, 1), setup_);
  Process other(Node(3, 1), setup_);
  const auto [refused, taken] = FirstToEnd(one, other);
  const Process::Result result = refused->Wait();
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(Errors(result.err), ElementsAre(HasSubstr("rank 1")));
  EXPECT_THAT(result.err, Not(HasSubstr("rank 2")));
  Process third(Node(3, 2), setup_);
  EXPECT_EQ(third.Wait().exit_code, 0);
  EXPECT_EQ(taken->Wait().exit_code, 0);
  EXPECT_EQ(first.Wait().exit_code, 0);
}

// A person must be able to tell a wait from a hang.
TEST_F(TwoNodesTest, WhoWaitsForLongSaysForWhomAndUntilWhen) {
  const auto errors_in_output = [](std::vector<std::string> command) {
    command.insert(command.begin(), {"sh", "-c", "exec \"$0\" \"$@\" 2>&1"});
    return command;
  };
  Process second(errors_in_output(Node(3, 1)), setup_);
  ASSERT_TRUE(second.WaitForOutput(
      absl::StrCat("cohort: rank 1 has waited 10s for rank 0 to listen at MASTER_ADDR=127.0.0.1 MASTER_PORT=", port_)));
  Process first(errors_in_output(Node(3, 0)), setup_);
  ASSERT_TRUE(first.WaitForOutput(
      absl::StrCat("cohort: rank 0 has waited 10s for rank 2 at MASTER_ADDR=127.0.0.1 MASTER_PORT=", port_)));
  Process third(Node(3, 2), setup_);
  EXPECT_EQ(third.Wait().exit_code, 0);
  EXPECT_EQ(second.Wait().exit_code, 0);
  const Process::Result result = first.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, ContainsRegex("has waited 10s for rank 2 at [^\n]*; 4m[0-9]+s left\n"));
}

}  // namespace
}  // namespace cohort::testing
