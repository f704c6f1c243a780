// A rank for launch_test: what a shell script cannot do. The first argument says what.

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

int Number(const char* name) { return atoi(getenv(name)); }

// lines COUNT [COUNT_OF_RANK_3]: alternates between the streams; line i of rank r is "r:i:" and as many letters as i *
// 37 mod 20000. The last one lacks its newline. With a second count rank 3 kills itself after so many, and the others,
// which ignore the request to stop, print all.
int PrintLines(int count, int count_of_rank_3) {
  const int rank = Number("RANK");
  const bool dies = rank == 3 && count_of_rank_3 > 0;
  if (count_of_rank_3 > 0) signal(SIGTERM, SIG_IGN);
  if (dies) count = count_of_rank_3;
  for (int i = 0; i < count; ++i) {
    const std::string letters(i * 37 % 20000, static_cast<char>('a' + rank));
    fprintf(i % 2 == 0 ? stdout : stderr, "%d:%d:%s%s", rank, i, letters.c_str(), i + 2 < count ? "\n" : "");
  }
  fflush(nullptr);
  if (dies) kill(getpid(), SIGKILL);
  return 0;
}

// daemon: leaves a process with a session of its own that keeps standard output open, for longer than any test runs.
int LeaveDaemon() {
  int has_left[2];
  if (pipe(has_left) != 0) return perror("pipe"), 1;
  if (fork() == 0) {
    setsid();
    close(has_left[0]);
    close(has_left[1]);
    for (;;) pause();
  }
  close(has_left[1]);
  char byte;
  return read(has_left[0], &byte, 1) == 0 ? 0 : 1;
}

// signals LAST: prints each signal it gets, ends with 0 on the one with that number.
int PrintSignals(int last) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  printf("ready\n");
  for (int signal = 0; signal != last;) {
    fflush(stdout);
    sigwait(&all, &signal);
    if (signal != SIGCONT) printf("got %d\n", signal);
  }
  return 0;
}

// masks: prints which signals are blocked and which are ignored.
int PrintMasks() {
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  for (int signal = 1; signal < SIGRTMAX; ++signal) {
    struct sigaction action;
    if (sigismember(&blocked, signal) == 1) printf("blocked %d\n", signal);
    if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) printf("ignored %d\n", signal);
  }
  printf("end\n");
  return 0;
}

// meet: rank 0 listens where the launcher said, rank 1 connects and sends it a byte.
int Meet() {
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(Number("MASTER_PORT"));
  inet_pton(AF_INET, getenv("MASTER_ADDR"), &address.sin_addr);
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  char byte = 'x';
  if (Number("RANK") != 0) {
    while (connect(socket_fd, any, sizeof(address)) != 0) {
      if (errno != ECONNREFUSED) return perror("connect"), 1;
      usleep(1000);
    }
    return write(socket_fd, &byte, 1) == 1 ? 0 : 1;
  }
  if (bind(socket_fd, any, sizeof(address)) != 0 || listen(socket_fd, 1) != 0) return perror("listen"), 1;
  if (read(accept(socket_fd, nullptr, nullptr), &byte, 1) != 1) return perror("accept"), 1;
  printf("met at %d\n", Number("MASTER_PORT"));
  return 0;
}

// unkillable: as a process that hangs in the kernel. A tracer stops it half-way through its end, and never lets it go
// on.
int BeUnkillable() {
  const pid_t rank = getpid();
  const pid_t tracer = fork();
  if (tracer == 0) {
    setsid();
    // Until the rank has given its leave.
    while (ptrace(PTRACE_SEIZE, rank, nullptr, PTRACE_O_TRACEEXIT) != 0) usleep(1000);
    printf("traced\n");
    fflush(stdout);
    for (;;) pause();
  }
  prctl(PR_SET_PTRACER, tracer);
  for (;;) pause();
}

// without-pidfd COMMAND...: runs it as on a kernel that has no pidfd_open().
int RunWithoutPidfd(char** command) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {.len = std::size(filter), .filter = filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    return perror("seccomp"), 1;
  }
  if (syscall(SYS_pidfd_open, getpid(), 0) != -1) return fprintf(stderr, "pidfd_open() still works\n"), 1;
  execvp(command[0], command);
  return perror(command[0]), 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "lines" && argc == 3) return PrintLines(atoi(argv[2]), 0);
  if (mode == "lines" && argc == 4) return PrintLines(atoi(argv[2]), atoi(argv[3]));
  if (mode == "daemon") return LeaveDaemon();
  if (mode == "signals" && argc == 3) return PrintSignals(atoi(argv[2]));
  if (mode == "masks") return PrintMasks();
  if (mode == "meet") return Meet();
  if (mode == "unkillable") return BeUnkillable();
  if (mode == "without-pidfd" && argc > 2) return RunWithoutPidfd(argv + 2);
  fprintf(stderr,
          "usage: %s lines COUNT [COUNT_OF_RANK_3] | daemon | signals LAST | masks | meet | unkillable | without-pidfd "
          "COMMAND...\n",
          argv[0]);
  return 2;
}
