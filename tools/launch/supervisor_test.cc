// The supervisor inside this process; launch_test and launch_stop_test show it at work in the launcher.

#include "cohort/tools/launch/supervisor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "absl/time/time.h"
#include "cohort/tools/launch/front_link.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class SupervisorTest : public testing::Test {
 protected:
  SupervisorTest() : signals_(*SignalReader::Open()), out_(OpenFile()), err_(OpenFile()) {}

  // Nobody is left: no child, and no zombie.
  ~SupervisorTest() override { EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1); }

  int Run(int nproc_per_node, std::string script, absl::Duration grace = absl::Seconds(30)) {
    Job job;
    job.plan.nproc_per_node = nproc_per_node;
    job.plan.master_addr = "127.0.0.1";
    job.command = {"/bin/sh", "-c", std::move(script)};
    job.environment = ReadEnvironment(environ);
    job.grace = grace;
    Poller poller = *Poller::Open();
    Console console(out_.get(), err_.get());
    FrontLink front;
    return Supervisor(job, poller, signals_, front, console).Run().exit_code;
  }

  static UniqueFd OpenFile() { return UniqueFd(open(testing::TempDir().c_str(), O_RDWR | O_TMPFILE, 0600)); }

  static std::string Contents(const UniqueFd& file) {
    std::string text(1 << 16, '\0');
    text.resize(pread(file.get(), text.data(), text.size(), 0));
    return text;
  }

  SignalReader signals_;
  UniqueFd out_;
  UniqueFd err_;
};

TEST_F(SupervisorTest, SuccessIsSilentAndZero) {
  EXPECT_EQ(Run(3, "[ $RANK = 1 ] && echo from 1; exit 0"), 0);
  EXPECT_EQ(Contents(out_), "[1] from 1\n");
  EXPECT_EQ(Contents(err_), "");
}

TEST_F(SupervisorTest, TheFirstFailureStopsTheOthersAndIsNamed) {
  EXPECT_EQ(Run(3, "[ $RANK = 1 ] && { echo why >&2; exit 3; }; exec sleep 1000"), 3);
  EXPECT_THAT(Contents(err_), AllOf(ContainsRegex("rank 1 \\(pid [0-9]+\\) exited with code 3 after .*; stopping the "
                                                  "others: SIGTERM now, SIGKILL in 30s\n"),
                                    ContainsRegex("rank 1 \\(pid [0-9]+\\) failed first: exited with code 3 at "),
                                    HasSubstr("launch:   why\n"),
                                    HasSubstr("ranks 0, 2: stopped by the launcher (killed by SIGTERM)\n")));
}

TEST_F(SupervisorTest, TheOnlyRanksFailureIsToldOnce) {
  EXPECT_EQ(Run(1, "exit 4"), 4);
  EXPECT_THAT(Contents(err_),
              ContainsRegex("^launch: rank 0 \\(pid [0-9]+\\) failed first: exited with code 4 at .*\n$"));
}

TEST_F(SupervisorTest, NoGraceAtAllKillsAtOnce) {
  EXPECT_EQ(Run(2, "[ $RANK = 1 ] && exit 5; trap '' TERM; while :; do sleep 1000; done", absl::ZeroDuration()), 5);
  EXPECT_THAT(Contents(err_), HasSubstr("rank 0: stopped by the launcher (killed by SIG"));
}

TEST_F(SupervisorTest, AStopRequestThatCameBeforeTheStartIsHonoured) {
  raise(SIGTERM);
  EXPECT_EQ(Run(2, "exec sleep 1000"), 128 + SIGTERM);
}

TEST_F(SupervisorTest, WhenARankCannotBeStartedTheOthersAreKilled) {
  // Descriptors for about two ranks.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const UniqueFd lowest(dup(out_.get()));
  rlimit few = before;
  few.rlim_cur = lowest.get() + 14;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_EQ(Run(9, "exec sleep 1000"), kExitLauncherFailed);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(Contents(err_), ContainsRegex("^launch: rank [1-8]: cannot open a pipe: .*Too many open files.*; every "
                                            "rank needs 4 descriptors, .*: ulimit -n is [0-9]+\n$"));
}

}  // namespace
}  // namespace cohort::launch
