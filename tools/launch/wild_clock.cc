// A wall clock that is set at every look: an hour ahead if WILD_CLOCK is "ahead", otherwise an hour back. Linked into a program
// it takes the place of the C library's.

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static std::atomic<int> looks = 0;
  const auto result = static_cast<int>(syscall(SYS_clock_gettime, clock, time));
  if (result != 0 || clock != CLOCK_REALTIME) return result;
  const char* const direction = getenv("WILD_CLOCK");
  const int hour = direction != nullptr && strcmp(direction, "ahead") == 0 ? 3600 : -3600;
  time->tv_sec += hour * ++looks;
  return result;
}
