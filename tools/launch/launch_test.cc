// The launcher as a person sees it: what it starts, with which environment, what it prints, and its exit code.

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/port_reservation.h"
#include "cohort/tools/launch/test_launcher.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

std::string Subject() { return getenv("SUBJECT"); }

// --- What is started.

TEST(LaunchTest, EveryRankGetsTorchrunsVariables) {
  const TestLauncher::Result result = RunLauncher(Shells(
      2,
      "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $ROLE_RANK $ROLE_WORLD_SIZE "
      "$ROLE_NAME $MASTER_ADDR $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $TORCHELASTIC_USE_AGENT_STORE "
      "$OMP_NUM_THREADS"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(WholeLines(result.out), UnorderedElementsAre("[0] 0 0 2 2 0 1 0 2 default 127.0.0.1 0 0 False 1",
                                                           "[1] 1 1 2 2 0 1 1 2 default 127.0.0.1 0 0 False 1"));
  EXPECT_EQ(result.err, "");
}

TEST(LaunchTest, EachLaunchHasANameThatItsRanksShare) {
  const std::vector<std::string> command = Shells(2, "echo $TORCHELASTIC_RUN_ID");
  std::set<std::string> names;
  for (const TestLauncher::Result& result : {RunLauncher(command), RunLauncher(command)}) {
    const std::vector<std::string> lines = WholeLines(result.out);
    ASSERT_EQ(lines.size(), 2);
    EXPECT_EQ(lines[0].substr(4), lines[1].substr(4));
    EXPECT_THAT(lines[0], HasSubstr("launch-"));
    names.insert(lines[0].substr(4));
  }
  EXPECT_EQ(names.size(), 2);
}

TEST(LaunchTest, RanksOfTheSecondNodeFollowThoseOfTheFirst) {
  const TestLauncher::Result result =
      RunLauncher(Shells(2, "echo $RANK $LOCAL_RANK $WORLD_SIZE $GROUP_RANK $MASTER_ADDR:$MASTER_PORT",
                         {"--nnodes=2", "--node-rank=1", "--master-addr=node-0", "--master-port=1"}));
  EXPECT_THAT(WholeLines(result.out), UnorderedElementsAre("[2] 2 0 4 1 node-0:1", "[3] 3 1 4 1 node-0:1"));
}

TEST(LaunchTest, NothingOfASurroundingJobShowsThrough) {
  TestLauncher::Setup inside_a_rank;
  inside_a_rank.environment = {{"RANK", "7"},          {"WORLD_SIZE", "9"},
                               {"LOCAL_RANK", "3"},    {"MASTER_ADDR", "elsewhere"},
                               {"MASTER_PORT", "1"},   {"TORCHELASTIC_RUN_ID", "outer"},
                               {"GROUP_RANK", "2"},    {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"ROLE_NAME", "outer"}, {"TORCHELASTIC_ERROR_FILE", "/outer"},
                               {"SOMETHING", "else"}};
  const TestLauncher::Result result = RunLauncher({"env"}, inside_a_rank);
  EXPECT_EQ(result.exit_code, 0);
  const std::vector<std::string> lines = WholeLines(result.out);
  EXPECT_THAT(lines, testing::IsSupersetOf({"RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1",
                                            "GROUP_RANK=0", "SOMETHING=else"}));
  for (const std::string& line : lines) {
    EXPECT_THAT(line, AllOf(Not(HasSubstr("outer")), Not(HasSubstr("elsewhere"))));
    EXPECT_NE(line, "MASTER_PORT=1");
  }
}

TEST(LaunchTest, EverythingAfterTheProgramBelongsToIt) {
  const TestLauncher::Result result =
      RunLauncher({"--nproc_per_node", "1", "echo", "--nproc-per-node=7", "--help", "--", "a b"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "--nproc-per-node=7 --help -- a b\n");
}

TEST(LaunchTest, OnlyTheFirstRankHasStandardInput) {
  TestLauncher::Setup setup;
  setup.stdin_path = absl::StrCat(NewDirectory(), "/in");
  WriteFile(setup.stdin_path, "one\ntwo\n");
  const TestLauncher::Result result = RunLauncher(Shells(3, "echo begin; cat; echo end"), setup);
  EXPECT_EQ(result.exit_code, 0);
  std::map<std::string, std::string> text_of;
  for (const std::string& line : WholeLines(result.out)) text_of[line.substr(0, 4)] += line.substr(4) + ",";
  EXPECT_EQ(text_of["[0] "], "begin,one,two,end,");
  EXPECT_EQ(text_of["[1] "], "begin,end,");
  EXPECT_EQ(text_of["[2] "], "begin,end,");
}

TEST(LaunchTest, ClosedStandardStreamsAreNotTakenForPipes) {
  TestLauncher::Setup setup;
  setup.wrapper = {"sh", "-c", "exec \"$@\" <&- >&-", "sh"};
  const std::string file = absl::StrCat(NewDirectory(), "/file");
  const TestLauncher::Result result =
      RunLauncher(Shells(2, absl::StrCat("cat; echo lost; echo $RANK >>", file)), setup);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(WholeLines(ReadFile(file)), UnorderedElementsAre("0", "1"));
}

TEST(LaunchTest, RanksStartWithCleanSignals) {
  TestLauncher::Setup setup;
  setup.wrapper = {"sh", "-c", "trap '' USR1 PIPE TERM; exec \"$@\"", "sh"};
  const TestLauncher::Result result = RunLauncher({Subject(), "masks"}, setup);
  EXPECT_EQ(result.out, "end\n");
}

TEST(LaunchTest, AHangUpThatNohupIgnoresStaysIgnored) {
  TestLauncher::Setup setup;
  setup.wrapper = {"sh", "-c", "trap '' HUP; exec \"$@\"", "sh"};
  const TestLauncher::Result result = RunLauncher({Subject(), "masks"}, setup);
  EXPECT_EQ(result.out, "ignored 1\nend\n");
}

// --- What is printed.

TEST(LaunchTest, LinesStayWholeAndInOrderWithOnePrefixEach) {
  constexpr int kRanks = 4;
  constexpr int kLines = 1000;
  const TestLauncher::Result result =
      RunLauncher({"--nproc-per-node", absl::StrCat(kRanks), Subject(), "lines", absl::StrCat(kLines)});
  EXPECT_EQ(result.exit_code, 0);
  for (const auto& [text, parity] : {std::pair(result.out, 0), std::pair(result.err, 1)}) {
    std::vector<int> next(kRanks, parity);
    for (const std::string& line : WholeLines(text)) {
      ASSERT_EQ(line.substr(0, 1) + line.substr(2, 2), "[] ") << line.substr(0, 40);
      const int rank = line[1] - '0';
      ASSERT_TRUE(0 <= rank && rank < kRanks);
      const int i = next[rank];
      next[rank] += 2;
      ASSERT_EQ(line, absl::StrCat("[", rank, "] ", rank, ":", i, ":", std::string(i * 37 % 20000, 'a' + rank)));
    }
    EXPECT_THAT(next, ElementsAre(kLines + parity, kLines + parity, kLines + parity, kLines + parity));
  }
}

TEST(LaunchTest, PrefixesAreAsWideAsTheLastRanks) {
  const TestLauncher::Result result = RunLauncher(Shells(11, "echo x"));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(WholeLines(result.out), testing::IsSupersetOf({"[ 0] x", "[ 9] x", "[10] x"}));
}

TEST(LaunchTest, ALoneRanksOutputIsAsWithoutALauncher) {
  const TestLauncher::Result result = RunLauncher(Shells(1, "echo out; echo err >&2"));
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
}

TEST(LaunchTest, AnUnfinishedLastLineGetsItsNewline) {
  EXPECT_EQ(RunLauncher(Shells(1, "printf unfinished")).out, "unfinished\n");
}

TEST(LaunchTest, BothStreamsIntoOnePipeKeepTheirLinesWhole) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  TestLauncher::Setup setup;
  setup.out_fd = setup.err_fd = pipe_fds[1];
  TestLauncher launcher({"--nproc-per-node=2", Subject(), "lines", "400"}, setup);
  close(pipe_fds[1]);
  std::string text;
  char buffer[5000];
  for (ssize_t count; (count = read(pipe_fds[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, count);
  close(pipe_fds[0]);
  EXPECT_EQ(launcher.Wait().exit_code, 0);
  const std::vector<std::string> lines = WholeLines(text);
  EXPECT_EQ(lines.size(), 800);
  for (const std::string& line : lines) {
    const char rank = line[1];
    ASSERT_EQ(line.substr(0, 6), absl::StrCat("[", std::string(1, rank), "] ", std::string(1, rank), ":"));
    const size_t letters = line.find(':', 6) + 1;
    ASSERT_EQ(line.size() - letters, atoi(line.c_str() + 6) * 37 % 20000);
    ASSERT_EQ(line.find_first_not_of(static_cast<char>('a' + rank - '0'), letters), std::string::npos);
  }
}

TEST(LaunchTest, AReaderThatStallsLosesNothingAndHoldsUpNoSignal) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  TestLauncher::Setup setup;
  setup.out_fd = pipe_fds[1];
  const std::string file = absl::StrCat(NewDirectory(), "/file");
  // More than fits into the pipe; then, from the trap, the last line.
  TestLauncher launcher(Shells(1, absl::StrCat("trap 'echo last; echo done >", file,
                                               "; exit 0' TERM; "
                                               "head -c 500000 /dev/zero | tr '\\0' x; echo; echo on >&2; "
                                               "while :; do sleep 0.01; done")),
                        setup);
  close(pipe_fds[1]);
  ASSERT_TRUE(launcher.AwaitErr("on"));
  launcher.Signal(SIGTERM);
  ASSERT_TRUE(AwaitCondition([&] { return ReadFile(file) == "done\n"; }));
  std::string text;
  char buffer[5000];
  for (ssize_t count; (count = read(pipe_fds[0], buffer, sizeof(buffer))) > 0;) text.append(buffer, count);
  close(pipe_fds[0]);
  EXPECT_EQ(launcher.Wait().exit_code, 143);
  EXPECT_TRUE(text == absl::StrCat(std::string(500000, 'x'), "\nlast\n")) << text.size();
}

TEST(LaunchTest, AStopRequestEndsTheWaitForAReaderAndIsNoSuccess) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  TestLauncher::Setup setup;
  setup.out_fd = pipe_fds[1];
  TestLauncher launcher(Shells(1, "head -c 500000 /dev/zero | tr '\\0' x"), setup);
  close(pipe_fds[1]);
  // The rank has ended, and the launcher alone is left, with its two processes.
  ASSERT_TRUE(AwaitCondition([&] { return ReadFile(absl::StrCat("/proc/", launcher.pid(), "/comm")) == "launch\n"; }));
  ASSERT_TRUE(AwaitCondition([&] {
    int waiting = 0;
    return ioctl(pipe_fds[0], FIONREAD, &waiting) == 0 && waiting > 0 && launcher.LiveProcesses().size() == 2;
  }));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 143);
  close(pipe_fds[0]);
}

TEST(LaunchTest, AStoppedJobDoesNotWaitForAReaderForEver) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  TestLauncher::Setup setup;
  setup.out_fd = pipe_fds[1];
  TestLauncher launcher({"--grace=1", "--nproc-per-node=2", "yes"}, setup);
  close(pipe_fds[1]);
  ASSERT_TRUE(AwaitCondition([&] {
    int waiting = 0;
    return ioctl(pipe_fds[0], FIONREAD, &waiting) == 0 && waiting > 0;
  }));
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Wait().exit_code, 143);  // nobody has read a byte
  close(pipe_fds[0]);
}

TEST(LaunchTest, ASizeLimitOnOurOutputIsAFullDisk) {
  TestLauncher::Setup setup;
  setup.wrapper = {"sh", "-c", "ulimit -f 8; exec \"$0\" \"$@\""};  // 4 KiB
  const TestLauncher::Result result = TestLauncher({"sh", "-c", "yes | head -c 50000"}, setup).Wait();
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.err, HasSubstr("cannot print any more (File too large)"));
}

TEST(LaunchTest, AReaderThatHasGoneEndsTheJobLikeAnyProgram) {
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  close(pipe_fds[0]);
  TestLauncher::Setup setup;
  setup.out_fd = pipe_fds[1];
  TestLauncher launcher({"--nproc-per-node=2", "yes"}, setup);
  close(pipe_fds[1]);
  const TestLauncher::Result result = launcher.Wait();
  EXPECT_EQ(result.exit_code, 141);
  EXPECT_THAT(result.err, HasSubstr("cannot print any more (Broken pipe)"));
  EXPECT_THAT(launcher.LiveProcesses(), IsEmpty());
}

TEST(LaunchTest, AFullDiskIsNotASuccess) {
  TestLauncher::Setup setup;
  const UniqueFd full(open("/dev/full", O_WRONLY));
  setup.out_fd = full.get();
  const TestLauncher::Result result = RunLauncher({"echo", "lost"}, setup);
  EXPECT_EQ(result.exit_code, 125);
  EXPECT_THAT(result.err, HasSubstr("cannot print any more (No space left on device)"));
}

TEST(LaunchTest, HelpGoesToStandardOutput) {
  const TestLauncher::Result result = RunLauncher({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("Usage: launch"), HasSubstr("--nproc-per-node")));
  EXPECT_EQ(result.err, "");
}

TEST(LaunchTest, ADryRunPrintsWhatWouldBeStartedAndStartsNothing) {
  const std::string file = absl::StrCat(NewDirectory(), "/started");
  const TestLauncher::Result result =
      RunLauncher({"--nproc-per-node=2", "--dry-run", "--rdzv-id=job-7", "--role=trainer", "touch", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::vector<std::string> lines = WholeLines(result.out);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_THAT(lines[3], AllOf(StartsWith("env "), HasSubstr(" RANK=1 "), HasSubstr(" TORCHELASTIC_RUN_ID=job-7 "),
                              HasSubstr(" ROLE_NAME=trainer "), EndsWith(absl::StrCat(" touch ", file))));
  EXPECT_NE(access(file.c_str(), F_OK), 0);
  // What it prints does start the rank.
  ASSERT_EQ(system(lines[3].c_str()), 0);
  EXPECT_EQ(access(file.c_str(), F_OK), 0);
}

TEST(LaunchTest, ExplainSaysWhatAProgramWouldFindHereAndNeedsNone) {
  const TestLauncher::Result alone = RunLauncher({"--explain"});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_THAT(alone.out, HasSubstr("a world of one"));
  TestLauncher::Setup under_mpirun;
  under_mpirun.environment = {{"OMPI_COMM_WORLD_RANK", "1"}};
  EXPECT_THAT(RunLauncher({"--explain"}, under_mpirun).out, HasSubstr("OMPI_COMM_WORLD_SIZE"));
}

// --- Exit codes.

TEST(LaunchTest, TheExitCodeIsThatOfTheRank) {
  EXPECT_EQ(RunLauncher({"true"}).exit_code, 0);
  EXPECT_EQ(RunLauncher(Shells(1, "exit 1")).exit_code, 1);
  EXPECT_EQ(RunLauncher(Shells(1, "exit 255")).exit_code, 255);
  EXPECT_EQ(RunLauncher(Shells(1, "kill -SEGV $$")).exit_code, 139);
  EXPECT_EQ(RunLauncher(Shells(1, "kill -KILL $$")).exit_code, 137);
}

TEST(LaunchTest, AWrongCommandLineIsOneLineAndStartsNothing) {
  const std::string file = absl::StrCat(NewDirectory(), "/started");
  const TestLauncher::Result result = RunLauncher(Shells(1, absl::StrCat("touch ", file), {"--nproc-per-nod=2"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(WholeLines(result.err),
              ElementsAre("launch: unknown flag --nproc-per-nod; did you mean --nproc-per-node? (see launch --help)"));
  EXPECT_EQ(result.out, "");
  struct stat status;
  EXPECT_NE(stat(file.c_str(), &status), 0);
}

TEST(LaunchTest, WhatCannotBeIsOneLineAndStartsNothing) {
  const std::string file = absl::StrCat(NewDirectory(), "/started");
  for (const std::vector<std::string>& flags : {std::vector<std::string>{"--nproc-per-node=0"},
                                                {"--nproc-per-node=100000"},
                                                {"--nnodes=2"},
                                                {"--standalone", "--nnodes=2", "--rdzv-endpoint=node-0:1"},
                                                {"--rdzv-endpoint=node-0:1", "--master-port=2"},
                                                {"--rdzv-conf=timeout=3"},
                                                {"-m"},
                                                {"--tee=5"},
                                                {"--local-ranks-filter=1"},
                                                {"--max-restarts=two"}}) {
    std::vector<std::string> command = flags;
    for (const std::string& word : {std::string("touch"), file}) command.push_back(word);
    const TestLauncher::Result result = RunLauncher(command);
    EXPECT_EQ(result.exit_code, 2) << flags.front();
    EXPECT_THAT(WholeLines(result.err), ElementsAre(AllOf(StartsWith("launch: -"), EndsWith(" (see launch --help)"))));
    EXPECT_EQ(result.out, "");
  }
  EXPECT_NE(access(file.c_str(), F_OK), 0);
}

TEST(LaunchTest, AMissingProgramIs127AsInAShell) {
  const std::string here = std::filesystem::current_path().string();
  for (const auto& [program, where] : {std::pair<std::string, std::string>("no-such-program", " in PATH"),
                                       {"./no-such-program", " in " + here},
                                       {"/no/such/program", ""}}) {
    const TestLauncher::Result result = RunLauncher({"--nproc-per-node=4", program});
    EXPECT_EQ(result.exit_code, 127);
    EXPECT_THAT(WholeLines(result.err),
                ElementsAre(absl::StrCat("launch: cannot start ", program, ": No such file or directory", where)));
  }
}

TEST(LaunchTest, AProgramThatIsNotExecutableIs126AsInAShell) {
  const std::string file = absl::StrCat(NewDirectory(), "/file");
  WriteFile(file, "#!/bin/sh\n");
  const TestLauncher::Result plain = RunLauncher({"--nproc-per-node=4", file});
  EXPECT_EQ(plain.exit_code, 126);
  EXPECT_THAT(WholeLines(plain.err), ElementsAre(absl::StrCat("launch: cannot start ", file, ": Permission denied")));

  const TestLauncher::Result directory = RunLauncher({"/tmp"});
  EXPECT_EQ(directory.exit_code, 126);
  EXPECT_EQ(directory.err, "launch: cannot start /tmp: it is a directory\n");

  WriteFile(file, "#!/no/such/interpreter\n");
  ASSERT_EQ(chmod(file.c_str(), 0700), 0);
  const TestLauncher::Result script = RunLauncher({file});
  EXPECT_EQ(script.exit_code, 126);
  EXPECT_THAT(script.err, HasSubstr("interpreter"));
}

// --- The port.

TEST(LaunchTest, TwoLaunchesAtOnceMeetAtPortsOfTheirOwn) {
  TestLauncher first({"--nproc-per-node=2", Subject(), "meet"});
  TestLauncher second({"--nproc-per-node=2", Subject(), "meet"});
  const TestLauncher::Result one = first.Wait();
  const TestLauncher::Result other = second.Wait();
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(one.out, StartsWith("[0] met at "));
  EXPECT_THAT(other.out, StartsWith("[0] met at "));
  EXPECT_NE(one.out, other.out);
}

TEST(LaunchTest, TwoLaunchersMakeOneJobOfTwoNodes) {
  // Held as a launcher would hold it: free for the ranks, and for nobody else.
  const absl::StatusOr<PortReservation> port = PortReservation::ChooseFree();
  ASSERT_TRUE(port.ok()) << port.status();
  auto node = [&](int node_rank) {
    return std::vector<std::string>{"--nnodes=2",
                                    absl::StrCat("--node-rank=", node_rank),
                                    "--master-addr=127.0.0.1",
                                    absl::StrCat("--master-port=", port->port()),
                                    Subject(),
                                    "meet"};
  };
  TestLauncher second(node(1));
  TestLauncher first(node(0));
  const TestLauncher::Result result = first.Wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, absl::StrCat("met at ", port->port(), "\n"));
  EXPECT_EQ(second.Wait().exit_code, 0) << second.err();
}

TEST(LaunchTest, APortThatTheUserNamedIsUsed) {
  const absl::StatusOr<PortReservation> port = PortReservation::ChooseFree();
  ASSERT_TRUE(port.ok()) << port.status();
  const std::string expected = absl::StrCat("[0] met at ", port->port(), "\n");
  const std::vector<std::string> command = {"--nproc-per-node=2", Subject(), "meet"};

  std::vector<std::string> with_flag = command;
  with_flag.insert(with_flag.begin(), absl::StrCat("--master-port=", port->port()));
  EXPECT_EQ(RunLauncher(with_flag).out, expected);

  TestLauncher::Setup with_variable;
  with_variable.environment["MASTER_PORT"] = absl::StrCat(port->port());
  EXPECT_EQ(RunLauncher(command, with_variable).out, expected);
}

TEST(LaunchTest, ABusyPortIsNamedAndNothingIsStarted) {
  const UniqueFd server(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(listen(server.get(), 1), 0);
  sockaddr_in address = {};
  socklen_t length = sizeof(address);
  ASSERT_EQ(getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string port = absl::StrCat(ntohs(address.sin_port));

  TestLauncher::Setup with_variable;
  with_variable.environment["MASTER_PORT"] = port;
  for (const TestLauncher::Result& result :
       {RunLauncher({"--master-port", port, "echo", "started"}), RunLauncher({"echo", "started"}, with_variable)}) {
    EXPECT_EQ(result.exit_code, 125);
    EXPECT_THAT(WholeLines(result.err),
                ElementsAre(StartsWith(absl::StrCat(
                    "launch: port ", port, " is in use by another program; choose another with --master-port"))));
    EXPECT_EQ(result.out, "");
  }
}

TEST(LaunchTest, ExplainSaysByItsExitCodeWhetherAProgramCouldStart) {
  EXPECT_EQ(RunLauncher({"--explain"}).exit_code, 0);
  const TestLauncher::Result result = RunLauncher({"--explain"}, {.environment = {{"RANK", "x"}, {"WORLD_SIZE", "2"}}});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("error"));
}

}  // namespace
}  // namespace cohort::launch
