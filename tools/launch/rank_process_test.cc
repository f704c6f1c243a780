#include "cohort/tools/launch/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

bool AwaitEvent(const UniqueFd& fd, short events) {
  pollfd request = {.fd = fd.get(), .events = events, .revents = 0};
  return poll(&request, 1, 60000) == 1;
}

std::string ReadToEnd(const UniqueFd& fd) {
  std::string text;
  char buffer[4096];
  while (AwaitEvent(fd, POLLIN)) {
    const ssize_t count = read(fd.get(), buffer, sizeof(buffer));
    if (count <= 0) break;
    text.append(buffer, count);
  }
  return text;
}

class RankProcessTest : public testing::Test {
 protected:
  absl::StatusOr<RankProcess> Start(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
    return StartRank(
        {.arguments = std::move(arguments), .environment = std::move(environment), .stdin_fd = null_.get()});
  }

  RankProcess StartShell(std::string script, std::vector<std::string> environment = {}) {
    absl::StatusOr<RankProcess> process = Start({"/bin/sh", "-c", std::move(script)}, std::move(environment));
    EXPECT_THAT(process, IsOk());
    return *std::move(process);
  }

  const UniqueFd null_{open("/dev/null", O_RDONLY | O_CLOEXEC)};
};

TEST_F(RankProcessTest, TheStreamsAndTheEnvironmentAreWhatWasAskedFor) {
  const RankProcess process = StartShell("cat; echo $A-$HOME; echo err >&2", {"A=1"});
  EXPECT_EQ(ReadToEnd(process.out), "1-\n");
  EXPECT_EQ(ReadToEnd(process.err), "err\n");
  EXPECT_EQ(waitpid(process.pid, nullptr, 0), process.pid);
}

TEST_F(RankProcessTest, ItLeadsAProcessGroupOfItsOwn) {
  const RankProcess process = StartShell("read line");
  EXPECT_EQ(getpgid(process.pid), process.pid);
  EXPECT_NE(getpgrp(), process.pid);
  EXPECT_EQ(waitpid(process.pid, nullptr, 0), process.pid);
}

TEST_F(RankProcessTest, ItInheritsNothingOfTheLauncherButTheLifeline) {
  const RankProcess first = StartShell("exec sleep 1000");
  const RankProcess second = StartShell("exec ls /proc/self/fd");
  // What any child of this process has; the lifeline comes before 2, as ls sorts by letters.
  FILE* const ls = popen("exec ls /proc/self/fd", "re");
  char plain[4096] = {};
  ASSERT_GT(fread(plain, 1, sizeof(plain) - 1, ls), 0);
  pclose(ls);
  EXPECT_EQ(ReadToEnd(second.out), absl::StrReplaceAll(plain, {{"1\n2\n", "1\n1000\n2\n"}}));
  kill(first.pid, SIGKILL);
  EXPECT_EQ(waitpid(first.pid, nullptr, 0), first.pid);
  EXPECT_EQ(waitpid(second.pid, nullptr, 0), second.pid);
}

TEST_F(RankProcessTest, ItsEndCanBeWaitedFor) {
  const RankProcess process = StartShell("exit 7");
  ASSERT_TRUE(process.exited);
  ASSERT_TRUE(AwaitEvent(process.exited, POLLIN));
  int status = 0;
  EXPECT_EQ(waitpid(process.pid, &status, WNOHANG), process.pid);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

TEST_F(RankProcessTest, TheLifelineHangsUpBeforeAnyLowerFileIsClosed) {
  // Whoever sees the FIFO closed finds the lifeline broken already: again and again, on a machine as busy as it may be.
  const std::string fifo = absl::StrCat(testing::TempDir(), "/fifo");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  for (int i = 0; i < 50; ++i) {
    const RankProcess process = StartShell(absl::StrCat("exec 9>", fifo, "; exec sleep 1000"));
    const UniqueFd reader(open(fifo.c_str(), O_RDONLY));
    kill(process.pid, SIGKILL);
    char byte;
    ASSERT_EQ(read(reader.get(), &byte, 1), 0);
    pollfd lifeline = {.fd = process.lifeline.get(), .events = 0, .revents = 0};
    ASSERT_EQ(poll(&lifeline, 1, 0), 1);
    EXPECT_EQ(lifeline.revents, POLLHUP);
    ASSERT_EQ(waitpid(process.pid, nullptr, 0), process.pid);
  }
}

TEST_F(RankProcessTest, ItDiesWithItsParent) {
  int report[2];
  ASSERT_EQ(pipe2(report, O_CLOEXEC), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    const absl::StatusOr<RankProcess> process = Start({"/bin/sleep", "1000"});
    const pid_t pid = process.ok() ? process->pid : 0;
    if (write(report[1], &pid, sizeof(pid)) == sizeof(pid)) pause();
    _exit(1);
  }
  pid_t pid = 0;
  ASSERT_EQ(read(report[0], &pid, sizeof(pid)), sizeof(pid));
  ASSERT_EQ(kill(pid, 0), 0);
  kill(parent, SIGKILL);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  // Gone, or waiting for whoever is the new parent.
  std::string state;
  do {
    std::ifstream stat(absl::StrCat("/proc/", pid, "/stat"));
    std::string word;
    state = "gone";
    if (stat >> word >> word) stat >> state;
  } while (state != "gone" && state != "Z" && state != "X");
}

TEST_F(RankProcessTest, AProgramThatDoesNotExistIsNotFound) {
  EXPECT_THAT(Start({"/no/such/program"}),
              StatusIs(absl::StatusCode::kNotFound, "cannot start /no/such/program: No such file or directory"));
  EXPECT_THAT(Start({"no-such-program"}), StatusIs(absl::StatusCode::kNotFound));
  // No child is left.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

TEST_F(RankProcessTest, AProgramThatCannotBeExecutedIsAFailedPrecondition) {
  EXPECT_THAT(Start({"/etc/passwd"}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "cannot start /etc/passwd: Permission denied"));
  EXPECT_THAT(Start({"/proc"}), StatusIs(absl::StatusCode::kFailedPrecondition));
  EXPECT_THAT(Start({"/etc/passwd/x"}), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("Not a directory")));
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
}

}  // namespace
}  // namespace cohort::launch
