#include "cohort/tools/launch/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "absl/status/status_matchers.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

// Runs `body` in a process of its own, as what it changes holds for the whole process; returns its result.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool IsIgnored(int signal) {
  struct sigaction action;
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

TEST(SignalsTest, StopRequestsAreThoseThatAskAProgramToEnd) {
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGHUP}) EXPECT_TRUE(IsStopRequest(signal));
  for (const int signal : {SIGUSR1, SIGCHLD, SIGTSTP, SIGKILL, 0}) EXPECT_FALSE(IsStopRequest(signal));
}

TEST(SignalsTest, NamesAreThoseOfTheManual) {
  EXPECT_EQ(SignalName(SIGTERM), "SIGTERM");
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(SignalName(63), "signal 63");
}

TEST(SignalsTest, SignalsAreReadAndHaveNoOtherEffect) {
  EXPECT_EQ(InChild([] {
              absl::StatusOr<SignalReader> signals = SignalReader::Open();
              if (!signals.ok() || signals->Next().has_value()) return 1;
              for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCHLD}) {
                raise(signal);
                if (signals->Next() != signal) return 2;
              }
              return signals->Next().has_value() ? 3 : 0;
            }),
            0);
}

TEST(SignalsTest, TheSenderIsKnown) {
  EXPECT_EQ(InChild([] {
              absl::StatusOr<SignalReader> signals = SignalReader::Open();
              kill(getpid(), SIGTERM);
              return signals->Next() == SIGTERM && signals->sender() == getpid() ? 0 : 1;
            }),
            0);
}

TEST(SignalsTest, WhoReadsOfItsChildrenAloneIsNotReachedByTheOthers) {
  EXPECT_EQ(InChild([] {
              absl::StatusOr<SignalReader> signals = SignalReader::OpenForChildren();
              if (!signals.ok()) return 1;
              for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) raise(signal);
              if (signals->Next().has_value()) return 2;
              raise(SIGCHLD);
              return signals->Next() == SIGCHLD ? 0 : 3;
            }),
            0);
}

TEST(SignalsTest, AnIgnoredInterruptStaysIgnoredAndAnIgnoredTerminationDoesNot) {
  EXPECT_EQ(InChild([] {
              for (const int ignored : {SIGINT, SIGHUP, SIGQUIT, SIGTERM, SIGCHLD}) signal(ignored, SIG_IGN);
              absl::StatusOr<SignalReader> signals = SignalReader::Open();
              for (const int ignored : {SIGINT, SIGHUP, SIGQUIT}) raise(ignored);
              if (signals->Next().has_value()) return 1;
              raise(SIGTERM);
              if (signals->Next() != SIGTERM) return 2;
              return IsIgnored(SIGCHLD) ? 3 : 0;
            }),
            0);
}

TEST(SignalsTest, ResettingUndoesEverythingButWhatNohupMeant) {
  EXPECT_EQ(InChild([] {
              signal(SIGHUP, SIG_IGN);
              signal(SIGUSR1, SIG_IGN);
              if (!SignalReader::Open().ok() || !IsIgnored(SIGPIPE)) return 1;
              ResetSignals();
              sigset_t blocked;
              sigprocmask(SIG_BLOCK, nullptr, &blocked);
              if (!sigisemptyset(&blocked)) return 2;
              for (int signal = 1; signal < SIGRTMAX; ++signal) {
                if (IsIgnored(signal) != (signal == SIGHUP)) return 3;
              }
              return 0;
            }),
            0);
}

TEST(SignalsTest, SuspendingLastsUntilTheProcessIsContinued) {
  const pid_t pid = fork();
  if (pid == 0) {
    if (!SignalReader::Open().ok()) _exit(1);
    SuspendSelf();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, WUNTRACED), pid);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_EQ(WSTOPSIG(status), SIGTSTP);
  ASSERT_EQ(kill(pid, SIGCONT), 0);
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace cohort::launch
