// File: terminal_relay.h

#ifndef COHORT_TOOLS_LAUNCH_TERMINAL_RELAY_H_
#define COHORT_TOOLS_LAUNCH_TERMINAL_RELAY_H_

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// Hands what is typed at a terminal to a rank.
//
// A rank cannot read the terminal itself: it is in a process group of its own, in the background, and the kernel would
// stop it (SIGTTIN). Making its group the foreground one would send ^C to that rank alone. So the launcher reads, while
// it is in the foreground, and the rank reads a pipe. End of file (^D) is passed on.
//
// Not used if standard input is anything but a terminal: then the rank has the file itself.
class TerminalRelay {
 public:
  // `terminal_fd` stays the caller's. Reads of it must not stop the process: SIGTTIN is ignored.
  static absl::StatusOr<TerminalRelay> Open(int terminal_fd);

  // What the rank gets as standard input. To be closed here once the rank has it.
  UniqueFd& rank_end() { return rank_end_; }

  // Reads from the terminal and writes to the pipe, as much as possible without waiting.
  //
  // To be called when terminal_fd() has become readable (edge-triggered: in the background nothing is read, and the
  // wish to be read does not go away) and when pipe_fd() has become writable, while that is asked for.
  void Pump();

  int terminal_fd() const { return terminal_fd_; }
  int pipe_fd() const { return pipe_.get(); }
  bool wants_to_write() const { return !pending_.empty(); }
  // End of file, or the rank has closed its standard input: nothing more is to be done, and the relay should go.
  bool done() const { return end_of_file_ && pending_.empty(); }

 private:
  TerminalRelay(int terminal_fd, UniqueFd rank_end, UniqueFd pipe)
      : terminal_fd_(terminal_fd), rank_end_(std::move(rank_end)), pipe_(std::move(pipe)) {}

  void WritePending();
  // False if there is nothing to read now.
  bool ReadTerminal();

  int terminal_fd_;
  UniqueFd rank_end_;
  UniqueFd pipe_;
  std::string pending_;
  bool end_of_file_ = false;
};

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_TERMINAL_RELAY_H_
