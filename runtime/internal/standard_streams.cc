#include "cohort/runtime/internal/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace cohort::internal {

void OccupyStandardStreams() {
  // In this order the lowest free number, which open gives out, is the one that was found closed.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // Opened the wrong way round: who reads or writes gets EBADF, as from a closed one. A program that reports output that
    // it could not write still does.
    if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) return;
  }
}

}  // namespace cohort::internal
