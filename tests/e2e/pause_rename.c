// To be preloaded: stops the process in the middle of a save, when the new file is written and not yet in its place.
//
// The process writes "paused\n" to stdout in the rename to a name that contains $PAUSE_RENAME_TO, and goes on when somebody opens the FIFO
// $PAUSE_UNTIL for writing.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int rename(const char* from, const char* to) {
  const char* name = getenv("PAUSE_RENAME_TO");
  const char* until = getenv("PAUSE_UNTIL");
  if (name != NULL && until != NULL && strstr(to, name) != NULL) {
    if (write(STDOUT_FILENO, "paused\n", 7) != 7) abort();
    const int fd = open(until, O_RDONLY);
    if (fd < 0) abort();
    close(fd);
  }
  return ((int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename"))(from, to);
}
