#include "cohort/tools/launch/device_count.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {
namespace {

// Of CUresult: the answers that mean "there is none", and not that something is broken.
constexpr int kSuccess = 0;
constexpr int kStubLibrary = 34;  // the library that is only there to be linked against
constexpr int kNoDevice = 100;

// What the child says.
struct Answer {
  int result = 0;
  int count = 0;
};

Answer AskDriver(const char* driver) {
  void* const library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {};
  const auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(library, "cuInit"));
  const auto get_count = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDeviceGetCount"));
  if (init == nullptr || get_count == nullptr) return {};
  Answer answer;
  answer.result = init(0);
  if (answer.result == kSuccess) answer.result = get_count(&answer.count);
  return answer;
}

[[noreturn]] void RunChild(const char* driver, int pipe) {
  const Answer answer = AskDriver(driver);
  const bool written = write(pipe, &answer, sizeof(answer)) == sizeof(answer);
  _exit(written ? 0 : 1);
}

absl::StatusOr<Answer> ReadAnswer(int pipe, pid_t child) {
  Answer answer;
  ssize_t count;
  do {
    count = read(pipe, &answer, sizeof(answer));
  } while (count < 0 && errno == EINTR);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (count == sizeof(answer)) return answer;
  return absl::UnavailableError(absl::StrCat("the NVIDIA driver cannot be asked for its GPUs: it ended the process (",
                                             WIFSIGNALED(status) ? "signal " : "exit code ",
                                             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), ")"));
}

}  // namespace

absl::StatusOr<int> CountGpus(const char* driver) {
  int fds[2];
  if (pipe(fds) != 0) return absl::ErrnoToStatus(errno, "cannot open a pipe");
  const UniqueFd read_end(fds[0]);
  UniqueFd write_end(fds[1]);
  const pid_t child = fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot start a process");
  if (child == 0) RunChild(driver, write_end.get());
  write_end.reset();
  const absl::StatusOr<Answer> answer = ReadAnswer(read_end.get(), child);
  if (!answer.ok()) return answer.status();
  if (answer->result == kNoDevice || answer->result == kStubLibrary) return 0;
  if (answer->result != kSuccess) {
    return absl::UnavailableError(absl::StrCat("the NVIDIA driver does not work (cuInit: error ", answer->result, ")"));
  }
  return std::max(answer->count, 0);
}

int CountCpus() {
  // A set for 1024 processors is refused where there are more.
  for (int size = CPU_SETSIZE; size <= (1 << 20); size *= 2) {
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(CPU_ALLOC(size), [](cpu_set_t* set) { CPU_FREE(set); });
    if (set == nullptr) break;
    if (sched_getaffinity(0, CPU_ALLOC_SIZE(size), set.get()) == 0) return CPU_COUNT_S(CPU_ALLOC_SIZE(size), set.get());
    if (errno != EINVAL) break;
  }
  return 1;
}

}  // namespace cohort::launch
