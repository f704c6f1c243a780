#include "cohort/tools/launch/terminal_relay.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status_matchers.h"
#include "cohort/tools/launch/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::launch {
namespace {

// Runs `body` as the foreground process of a new terminal, with the terminal's two ends; returns its result.
int WithTerminal(const std::function<int(const UniqueFd& keyboard, const UniqueFd& terminal)>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    setsid();
    const UniqueFd keyboard(posix_openpt(O_RDWR | O_NOCTTY));
    if (!keyboard || grantpt(keyboard.get()) != 0 || unlockpt(keyboard.get()) != 0) _exit(101);
    const UniqueFd terminal(open(ptsname(keyboard.get()), O_RDWR));
    if (!terminal || tcgetpgrp(terminal.get()) != getpgrp()) _exit(102);
    _exit(body(keyboard, terminal));
  }
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void Type(const UniqueFd& keyboard, std::string_view text) {
  if (write(keyboard.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) _exit(103);
}

std::string ReadSome(const UniqueFd& fd) {
  fcntl(fd.get(), F_SETFL, O_NONBLOCK);
  char buffer[65536];
  const ssize_t count = read(fd.get(), buffer, sizeof(buffer));
  return count > 0 ? std::string(buffer, count) : count == 0 ? "end of file" : "nothing";
}

TEST(TerminalRelayTest, WhatIsTypedArrivesAndControlDIsTheEnd) {
  EXPECT_EQ(WithTerminal([](const UniqueFd& keyboard, const UniqueFd& terminal) {
              absl::StatusOr<TerminalRelay> relay = TerminalRelay::Open(terminal.get());
              relay->Pump();
              if (ReadSome(relay->rank_end()) != "nothing") return 1;
              Type(keyboard, "one\ntwo\nunfinished");
              relay->Pump();
              if (ReadSome(relay->rank_end()) != "one\ntwo\n") return 2;
              if (relay->done()) return 3;
              Type(keyboard, "\n\x04");
              relay->Pump();
              if (ReadSome(relay->rank_end()) != "unfinished\n") return 4;
              return relay->done() ? 0 : 5;
            }),
            0);
}

TEST(TerminalRelayTest, InTheBackgroundNothingIsTaken) {
  EXPECT_EQ(WithTerminal([](const UniqueFd& keyboard, const UniqueFd& terminal) {
              absl::StatusOr<TerminalRelay> relay = TerminalRelay::Open(terminal.get());
              // Another group comes to the foreground.
              const pid_t shell = fork();
              if (shell == 0) {
                setpgid(0, 0);
                pause();
              }
              setpgid(shell, shell);
              if (tcsetpgrp(terminal.get(), shell) != 0) return 1;
              Type(keyboard, "for the shell\n");
              relay->Pump();
              if (ReadSome(relay->rank_end()) != "nothing" || relay->done()) return 2;
              if (tcsetpgrp(terminal.get(), getpgrp()) != 0) return 3;
              relay->Pump();
              kill(shell, SIGKILL);
              return ReadSome(relay->rank_end()) == "for the shell\n" ? 0 : 4;
            }),
            0);
}

TEST(TerminalRelayTest, ARankThatDoesNotReadHoldsUpNothingAndLosesNothing) {
  EXPECT_EQ(WithTerminal([](const UniqueFd& keyboard, const UniqueFd& terminal) {
              absl::StatusOr<TerminalRelay> relay = TerminalRelay::Open(terminal.get());
              const std::string line = std::string(999, 'x') + "\n";
              size_t typed = 0;
              while (!relay->wants_to_write()) {
                Type(keyboard, line);
                ReadSome(keyboard);  // The echo.
                relay->Pump();
                typed += line.size();
              }
              size_t arrived = 0;
              for (std::string text; (text = ReadSome(relay->rank_end())) != "nothing";) {
                arrived += text.size();
                relay->Pump();
              }
              return arrived == typed && typed > 4096 && !relay->wants_to_write() ? 0 : 1;
            }),
            0);
}

TEST(TerminalRelayTest, ARankThatClosesItsInputIsLeftAlone) {
  EXPECT_EQ(WithTerminal([](const UniqueFd& keyboard, const UniqueFd& terminal) {
              absl::StatusOr<TerminalRelay> relay = TerminalRelay::Open(terminal.get());
              relay->rank_end().reset();
              Type(keyboard, "for nobody\n");
              relay->Pump();
              return relay->done() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace cohort::launch
