// The functions below take the place of libc's because the dynamic linker looks into the program and its libraries
// before it looks into libc. They make their system call themselves: looking libc's own up (dlsym) would not work in
// every state that a starting process is in, and what is done here must work in all.

// With it libc's headers would hold definitions of their own of what is defined here.
#undef _FORTIFY_SOURCE

#include "cohort/tests/faults/disk_shim.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/log/absl_check.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace cohort::testing {
namespace {

struct Hook {
  std::string operation;
  bool is_for_each;
  int countdown;
  std::function<int(const DiskCall&)> function;
};

struct State {
  absl::Mutex mutex;
  std::string directory ABSL_GUARDED_BY(mutex);
  std::vector<Hook> hooks ABSL_GUARDED_BY(mutex);
  std::optional<int64_t> room ABSL_GUARDED_BY(mutex);  // how many more bytes the disk takes
  std::function<int()> when_full ABSL_GUARDED_BY(mutex);
  std::vector<DiskCall> calls ABSL_GUARDED_BY(mutex);
};

State& TheState() {
  static State* const state = new State;
  return *state;
}

std::atomic<bool> g_watching = false;
// What a hook itself does is not watched.
thread_local bool g_inside = false;
// A call below the directory is being made, so what it writes needs room.
thread_local bool g_needs_room = false;

bool IsBelow(std::string_view path, std::string_view directory) {
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

std::string PathOf(int fd) {
  char path[PATH_MAX];
  const ssize_t size = readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), path, sizeof(path));
  return size < 0 ? "" : std::string(path, size);
}

std::string Absolute(int directory_fd, const char* path) {
  if (path == nullptr || path[0] == '/') return path == nullptr ? "" : path;
  char current[PATH_MAX];
  const std::string base =
      directory_fd == AT_FDCWD ? (getcwd(current, sizeof(current)) == nullptr ? "" : current) : PathOf(directory_fd);
  return absl::StrCat(base, "/", path);
}

// Does `call`, which sets errno and returns a negative number if it fails, under the eyes of the shim. `describe` gives
// the operation and the path; it is asked only if somebody watches.
long Watched(const std::function<DiskCall()>& describe, const std::function<long()>& call) {
  if (!g_watching || g_inside) return call();
  g_inside = true;
  const int errno_before = errno;
  State& state = TheState();
  DiskCall seen = describe();
  std::vector<std::function<int(const DiskCall&)>> due;
  bool is_below;
  {
    absl::MutexLock lock(state.mutex);
    is_below = IsBelow(seen.path, state.directory);
    if (is_below) {
      for (Hook& hook : state.hooks) {
        if (!hook.operation.empty() && hook.operation != seen.operation) continue;
        if (hook.is_for_each || --hook.countdown == 0) due.push_back(hook.function);
      }
    }
  }
  int error = 0;
  for (const auto& hook : due) {
    if (error == 0) error = hook(seen);
  }
  long result = -1;
  errno = errno_before;
  if (error != 0) {
    errno = error;
  } else {
    g_needs_room = is_below;
    result = call();
    g_needs_room = false;
  }
  const int errno_after = errno;
  if (is_below) {
    seen.error = result < 0 ? errno_after : 0;
    seen.ended_ns = MonotonicNanoseconds();
    absl::MutexLock lock(state.mutex);
    state.calls.push_back(std::move(seen));
  }
  g_inside = false;
  errno = errno_after;
  return result;
}

// How many of `size` bytes the disk takes, or -1 with errno.
ssize_t Fitting(size_t size) {
  if (!g_needs_room) return static_cast<ssize_t>(size);
  State& state = TheState();
  std::function<int()> when_full;
  {
    absl::MutexLock lock(state.mutex);
    if (!state.room.has_value() || size == 0) return static_cast<ssize_t>(size);
    const int64_t fitting = std::min(static_cast<int64_t>(size), *state.room);
    *state.room -= fitting;
    if (fitting > 0) return fitting;
    when_full = state.when_full;
  }
  errno = when_full();
  return -1;
}

long Open(int directory_fd, const char* path, int flags, mode_t mode) {
  const auto call = [&] { return syscall(SYS_openat, directory_fd, path, flags, mode); };
  if ((flags & O_ACCMODE) == O_RDONLY && (flags & O_CREAT) == 0) return call();
  return Watched(
      [&] {
        return DiskCall{(flags & O_CREAT) != 0 ? "create" : "open for writing", Absolute(directory_fd, path)};
      },
      call);
}

long Sync(int fd, long number) {
  return Watched(
      [&] {
        struct stat info;
        const bool is_directory = fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
        return DiskCall{is_directory ? "fsync directory" : "fsync", PathOf(fd)};
      },
      [&] { return syscall(number, fd); });
}

std::string Shown(const std::string& name) {
  static constexpr std::pair<std::string_view, std::string_view> kRandom[] = {{".cohort-tmp-", "TEMPORARY"},
                                                                              {".cohort-step-", "STEP"},
                                                                              {".cohort-removed-", "REMOVED"},
                                                                              {".cohort-latest-", "LATEST"}};
  for (const auto& [prefix, shown] : kRandom) {
    if (name.starts_with(prefix)) return std::string(shown);
  }
  return name;
}

}  // namespace

DiskShim::DiskShim(std::string_view directory) {
  State& state = TheState();
  absl::MutexLock lock(state.mutex);
  ABSL_CHECK(!g_watching) << "one DiskShim at a time";
  state.directory = directory;
  state.hooks.clear();
  state.room.reset();
  state.calls.clear();
  g_watching = true;
}

DiskShim::~DiskShim() { g_watching = false; }

void DiskShim::LimitBytes(int64_t num_bytes, std::function<int()> when_full) {
  State& state = TheState();
  absl::MutexLock lock(state.mutex);
  state.room = num_bytes;
  state.when_full = std::move(when_full);
}

void DiskShim::LimitBytes(int64_t num_bytes) {
  LimitBytes(num_bytes, [] { return ENOSPC; });
}

void DiskShim::Before(std::string_view operation, int n, std::function<int(const DiskCall&)> hook) {
  State& state = TheState();
  absl::MutexLock lock(state.mutex);
  state.hooks.push_back({std::string(operation), n == 0, n, std::move(hook)});
}

std::vector<DiskCall> DiskShim::Calls() const {
  State& state = TheState();
  absl::MutexLock lock(state.mutex);
  return state.calls;
}

std::vector<std::string> DiskShim::Names() const {
  std::vector<std::string> names;
  for (const DiskCall& call : Calls()) {
    names.push_back(absl::StrCat(call.operation, " ", Shown(call.path.substr(call.path.rfind('/') + 1))));
  }
  return names;
}

int64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace cohort::testing

using cohort::testing::Absolute;
using cohort::testing::DiskCall;
using cohort::testing::Fitting;
using cohort::testing::Open;
using cohort::testing::PathOf;
using cohort::testing::Sync;
using cohort::testing::Watched;

namespace {

mode_t ModeOf(int flags, va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
}

}  // namespace

// NOLINTBEGIN: libc's names and signatures.
extern "C" {

#define COHORT_OPEN_WITH_MODE(directory_fd)     \
  va_list arguments;                            \
  va_start(arguments, flags);                   \
  const mode_t mode = ModeOf(flags, arguments); \
  va_end(arguments);                            \
  return static_cast<int>(Open(directory_fd, path, flags, mode))

int open(const char* path, int flags, ...) { COHORT_OPEN_WITH_MODE(AT_FDCWD); }
int open64(const char* path, int flags, ...) { COHORT_OPEN_WITH_MODE(AT_FDCWD); }
int openat(int directory_fd, const char* path, int flags, ...) { COHORT_OPEN_WITH_MODE(directory_fd); }
int openat64(int directory_fd, const char* path, int flags, ...) { COHORT_OPEN_WITH_MODE(directory_fd); }

#undef COHORT_OPEN_WITH_MODE

ssize_t write(int fd, const void* bytes, size_t size) {
  return Watched(
      [&] {
        return DiskCall{"write", PathOf(fd)};
      },
      [&]() -> long {
        const ssize_t fitting = Fitting(size);
        return fitting < 0 ? -1 : syscall(SYS_write, fd, bytes, fitting);
      });
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  return Watched(
      [&] {
        return DiskCall{"write", PathOf(fd)};
      },
      [&]() -> long {
        const ssize_t fitting = Fitting(size);
        return fitting < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, fitting, offset);
      });
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) { return pwrite(fd, bytes, size, offset); }

int ftruncate(int fd, off_t size) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"truncate", PathOf(fd)};
      },
      [&] { return syscall(SYS_ftruncate, fd, size); }));
}
int ftruncate64(int fd, off64_t size) noexcept { return ftruncate(fd, size); }

int fsync(int fd) { return static_cast<int>(Sync(fd, SYS_fsync)); }
int fdatasync(int fd) { return static_cast<int>(Sync(fd, SYS_fdatasync)); }

int close(int fd) {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"close", PathOf(fd)};
      },
      [&] { return syscall(SYS_close, fd); }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"rename", Absolute(AT_FDCWD, to)};
      },
      [&] { return syscall(SYS_rename, from, to); }));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"mkdir", Absolute(AT_FDCWD, path)};
      },
      [&] { return syscall(SYS_mkdir, path, mode); }));
}

int symlink(const char* target, const char* path) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"symlink", Absolute(AT_FDCWD, path)};
      },
      [&] { return syscall(SYS_symlink, target, path); }));
}

int rmdir(const char* path) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"rmdir", Absolute(AT_FDCWD, path)};
      },
      [&] { return syscall(SYS_rmdir, path); }));
}

int unlink(const char* path) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{"unlink", Absolute(AT_FDCWD, path)};
      },
      [&] { return syscall(SYS_unlink, path); }));
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  return static_cast<int>(Watched(
      [&] {
        return DiskCall{(flags & AT_REMOVEDIR) != 0 ? "rmdir" : "unlink", Absolute(directory, path)};
      },
      [&] { return syscall(SYS_unlinkat, directory, path, flags); }));
}

}  // extern "C"
// NOLINTEND
