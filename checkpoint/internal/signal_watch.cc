#include "cohort/checkpoint/internal/signal_watch.h"

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/base/const_init.h"
#include "absl/base/thread_annotations.h"
#include "absl/log/absl_check.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace cohort::internal {
namespace {

// All that the handler touches.
using Count = std::atomic<uint32_t>;
static_assert(Count::is_always_lock_free, "a handler must not wait for a lock that the thread it stopped may hold");
constinit Count arrivals[NSIG] = {};

void CountArrival(int signal) { arrivals[signal].fetch_add(1, std::memory_order_relaxed); }

struct Installation {
  int num_watches = 0;
  struct sigaction before = {};
};
ABSL_CONST_INIT absl::Mutex mutex(absl::kConstInit);
constinit Installation installations[NSIG] ABSL_GUARDED_BY(mutex) = {};

absl::Status Refused(std::string_view option, int signal, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(option, "=", signal, ": ", why, "; SIGUSR1 (", SIGUSR1,
                                                 ") and SIGUSR2 (", SIGUSR2, ") are for this"));
}

// Why a handler is not the thing for `signal`; empty if it is.
std::string_view WhyNot(int signal) {
  switch (signal) {
    case SIGKILL:
    case SIGSTOP:
      return "SIGKILL and SIGSTOP cannot be caught";
    case SIGSEGV:
    case SIGBUS:
    case SIGFPE:
    case SIGILL:
    case SIGABRT:
      return "a program cannot go on after SIGSEGV, SIGBUS, SIGFPE, SIGILL or SIGABRT";
    default:
      return signal > 0 && signal < NSIG ? "" : "is no signal";
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<SignalWatch>> SignalWatch::Start(int signal, std::string_view option) {
  if (const std::string_view why = WhyNot(signal); !why.empty()) return Refused(option, signal, why);
  const absl::MutexLock lock(mutex);
  Installation& installation = installations[signal];
  if (installation.num_watches == 0) {
    struct sigaction action = {};
    action.sa_handler = CountArrival;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    // The C library keeps some for itself.
    if (sigaction(signal, &action, &installation.before) != 0) return Refused(option, signal, "cannot be caught");
  }
  ++installation.num_watches;
  return absl::WrapUnique(new SignalWatch(signal));
}

SignalWatch::SignalWatch(int signal)
    : signal_(signal), seen_(arrivals[signal].load(std::memory_order_relaxed)), forgotten_(seen_) {}

SignalWatch::~SignalWatch() {
  if (is_left_) return;  // and remains counted
  const absl::MutexLock lock(mutex);
  Installation& installation = installations[signal_];
  if (--installation.num_watches > 0) return;
  struct sigaction now = {};
  ABSL_CHECK_EQ(sigaction(signal_, nullptr, &now), 0);
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != CountArrival) return;
  ABSL_CHECK_EQ(sigaction(signal_, &installation.before, nullptr), 0);
}

bool SignalWatch::Look() {
  seen_ = arrivals[signal_].load(std::memory_order_relaxed);
  return seen_ != forgotten_;
}

}  // namespace cohort::internal
