// File: signals.h
//
// The signals that the launcher deals with: read in its event loop, never in a handler.

#ifndef COHORT_TOOLS_LAUNCH_SIGNALS_H_
#define COHORT_TOOLS_LAUNCH_SIGNALS_H_

#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

// True for the signals that ask a program to end: INT, TERM, QUIT, HUP.
bool IsStopRequest(int signal);

// "SIGTERM", or "signal 42" for one without a name of its own.
std::string SignalName(int signal);

// The signals sent to this process, as something that can be waited for: stop requests, USR1, USR2, TSTP (^Z), and
// CHLD.
//
// A signal among INT, QUIT and HUP that was ignored when the program started stays ignored, as nohup and the shell's
// '&' mean it; such a one is never read here.
class SignalReader {
 public:
  // Blocks the signals in the calling thread, the only one, and ignores those that would end or stop a program in the
  // background for printing or reading (PIPE, TTIN, TTOU).
  //
  // Errors: Internal, ResourceExhausted (the system refuses it).
  static absl::StatusOr<SignalReader> Open();

  // The same, but only CHLD is read: the others have no effect on this process.
  static absl::StatusOr<SignalReader> OpenForChildren();

  // Readable while a signal is waiting.
  int fd() const { return fd_.get(); }

  // The next one, or nullopt. Does not block.
  std::optional<int> Next();

  // The process that sent the signal which Next() returned last; 0 for the kernel, as of ^C.
  pid_t sender() const { return sender_; }

 private:
  explicit SignalReader(UniqueFd fd) : fd_(std::move(fd)) {}

  static absl::StatusOr<SignalReader> OpenFor(bool children_only);

  UniqueFd fd_;
  pid_t sender_ = 0;
};

// What TSTP does by default: blocks until CONT comes, or returns at once where there is no shell that could send one.
void SuspendSelf();

// For use between vfork() and exec(): undoes what SignalReader did, and what some parent may have left behind. No
// signal is blocked and each has its default action, but for INT, QUIT and HUP where they were ignored.
// Async-signal-safe.
void ResetSignals();

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_SIGNALS_H_
