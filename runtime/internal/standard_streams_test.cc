#include "cohort/runtime/internal/standard_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <initializer_list>

#include "gtest/gtest.h"

namespace cohort::internal {
namespace {

// What `body` returns in a child process in which the descriptors of the bits of `closed` are closed.
int InChild(int closed, const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
      if ((closed & 1 << fd) != 0) close(fd);
    }
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// The number that the next file gets.
int NextFile() { return open("/proc/self/status", O_RDONLY | O_CLOEXEC); }

TEST(StandardStreamsTest, NoFileGetsTheNumberOfAStreamThatTheCallerClosed) {
  for (int closed = 0; closed < 8; ++closed) {
    EXPECT_GT(InChild(closed,
                      [] {
                        OccupyStandardStreams();
                        return NextFile();
                      }),
              STDERR_FILENO)
        << closed;
  }
}

TEST(StandardStreamsTest, TheTestFindsAStreamThatIsLeftClosed) {
  EXPECT_EQ(InChild(1 << STDIN_FILENO, NextFile), STDIN_FILENO);
  EXPECT_EQ(InChild(1 << STDOUT_FILENO, NextFile), STDOUT_FILENO);
  EXPECT_EQ(InChild(1 << STDERR_FILENO, NextFile), STDERR_FILENO);
}

TEST(StandardStreamsTest, OutputThatNobodyGetsIsStillAnError) {
  for (int closed = 1; closed < 8; ++closed) {
    EXPECT_EQ(InChild(closed,
                      [=] {
                        OccupyStandardStreams();
                        char byte = 'x';
                        int wrong = 0;
                        if ((closed & 1) != 0) wrong += read(0, &byte, 1) != -1 || errno != EBADF;
                        for (int fd : {1, 2}) {
                          if ((closed & 1 << fd) != 0) wrong += write(fd, &byte, 1) != -1 || errno != EBADF;
                        }
                        return wrong;
                      }),
              0)
        << closed;
  }
}

TEST(StandardStreamsTest, WhatIsOpenStaysAsItIs) {
  EXPECT_EQ(InChild(0,
                    [] {
                      struct stat before[3], after[3];
                      for (int fd = 0; fd < 3; ++fd) fstat(fd, &before[fd]);
                      OccupyStandardStreams();
                      int changed = 0;
                      for (int fd = 0; fd < 3; ++fd) {
                        fstat(fd, &after[fd]);
                        changed += before[fd].st_ino != after[fd].st_ino || before[fd].st_dev != after[fd].st_dev;
                      }
                      return changed;
                    }),
            0);
}

}  // namespace
}  // namespace cohort::internal
