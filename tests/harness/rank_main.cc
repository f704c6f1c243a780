// main() of a rank of a multiprocess_test: GoogleTest's, for a program of which N copies run at once.
//
// What is different from gtest_main, and why:
//   - Every TEST body is collective, so the ranks must run the same ones in the same order: no shuffling, and the first
//     failure ends the run. A rank that went on after a failed assertion would be in another operation than the others.
//   - A run in which no TEST ran fails.
//   - A TEST that goes on for too long is ended here, where it can be said which one it was and where it stood. Whoever
//     kills from outside knows less.
//   - Each rank writes its result into a file of its own; run_ranks.sh compares them.

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/symbolize.h"
#include "absl/log/initialize.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// The TEST that is running, for the handler of SIGTERM.
std::atomic<const testing::TestInfo*> g_running = nullptr;

std::string Environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

// Async-signal-safe.
void Say(const char* text) { [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text)); }

// SIGTERM: the launcher ends this rank because another one failed, or because the time for all is over.
void SayWhereAndDie(int signal_number) {
  Say("told to stop ");
  if (const testing::TestInfo* running = g_running.load()) {
    Say("in ");
    Say(running->test_suite_name());
    Say(".");
    Say(running->name());
    Say("\n");
  } else {
    Say("outside of any TEST\n");
  }
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

// Ends the process with a stack trace of the main thread when one TEST takes longer than `limit`.
class Watchdog : public testing::EmptyTestEventListener {
 public:
  explicit Watchdog(absl::Duration limit) : limit_(limit), main_thread_(pthread_self()), thread_([this] { Watch(); }) {}

  // GoogleTest destroys its listeners when the process ends: the thread must not outlive the mutex that it waits on.
  ~Watchdog() override {
    {
      absl::MutexLock lock(mutex_);
      done_ = true;
    }
    thread_.join();
  }

  void OnTestStart(const testing::TestInfo& info) override {
    absl::MutexLock lock(mutex_);
    g_running = &info;
    deadline_ = absl::Now() + limit_;
  }

  void OnTestEnd(const testing::TestInfo&) override {
    absl::MutexLock lock(mutex_);
    g_running = nullptr;
    deadline_ = absl::InfiniteFuture();
  }

 private:
  void Watch() {
    absl::MutexLock lock(mutex_);
    while (absl::Now() < deadline_) {
      const absl::Time watched = deadline_;
      auto has_changed = [this, watched]()
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_ || deadline_ != watched; };
      mutex_.AwaitWithDeadline(absl::Condition(&has_changed), watched);
      if (done_) return;
    }
    const testing::TestInfo* running = g_running;
    std::fprintf(stderr, "%s.%s has run for more than %s. Where its thread stands:\n", running->test_suite_name(),
                 running->name(), absl::FormatDuration(limit_).c_str());
    std::fflush(nullptr);
    pthread_kill(main_thread_, SIGABRT);  // its handler prints the stack of the thread that it interrupts
  }

  const absl::Duration limit_;
  const pthread_t main_thread_;
  absl::Mutex mutex_;
  absl::Time deadline_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

absl::Duration TestLimit() {
  const std::string text = Environment("COHORT_TEST_SECONDS", "40");
  int seconds = 0;
  if (!absl::SimpleAtoi(text, &seconds) || seconds <= 0) {
    std::fprintf(stderr, "COHORT_TEST_SECONDS is '%s'; it must be a whole number of seconds, at least 1.\n",
                 text.c_str());
    std::exit(2);
  }
  return absl::Seconds(seconds);
}

}  // namespace

int main(int argc, char** argv) {
  absl::InitializeSymbolizer(argv[0]);
  absl::InstallFailureSignalHandler(absl::FailureSignalHandlerOptions());
  signal(SIGTERM, SayWhereAndDie);
  absl::InitializeLog();

  // Read by InitGoogleMock.
  const std::string rank = Environment("RANK", "0");
  if (const std::string folder = Environment("COHORT_RANK_RESULTS", ""); !folder.empty()) {
    GTEST_FLAG_SET(output, absl::StrCat("xml:", folder, "/rank_", rank, ".xml"));
  }
  if (rank != "0") GTEST_FLAG_SET(brief, true);  // failures only: the rest would be the same lines again
  testing::InitGoogleMock(&argc, argv);

  GTEST_FLAG_SET(shuffle, false);
  GTEST_FLAG_SET(fail_fast, true);
  testing::UnitTest::GetInstance()->listeners().Append(new Watchdog(TestLimit()));
  const int result = RUN_ALL_TESTS();
  if (testing::UnitTest::GetInstance()->test_to_run_count() == 0) {
    std::fprintf(stderr, "No TEST ran: none is linked into this program, or the filter selects none.\n");
    return 1;
  }
  return result;
}
