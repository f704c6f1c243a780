// LD_PRELOAD library for tests: writes down what a process asks of the network's names and sockets, one line a call, into the file
// NETWORK_SHIM_LOG, and makes the machine's own name NETWORK_SHIM_HOSTNAME if that is set.

#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace {

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void Log(const char* call, const char* argument) {
  const char* path = getenv("NETWORK_SHIM_LOG");
  if (path == nullptr) return;
  char line[512];
  const int size = snprintf(line, sizeof(line), "%s %s\n", call, argument);
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (write(fd, line, size) != size) abort();
  close(fd);
}

}  // namespace

extern "C" {

int socket(int domain, int type, int protocol) {
  if (domain == AF_INET || domain == AF_INET6) Log("socket", domain == AF_INET ? "IPv4" : "IPv6");
  return Next<int(int, int, int)>("socket")(domain, type, protocol);
}

int getaddrinfo(const char* node, const char* service, const addrinfo* hints, addrinfo** result) {
  Log("getaddrinfo", node == nullptr ? "-" : node);
  return Next<int(const char*, const char*, const addrinfo*, addrinfo**)>("getaddrinfo")(node, service, hints, result);
}

int gethostname(char* name, size_t size) {
  const char* made_up = getenv("NETWORK_SHIM_HOSTNAME");
  if (made_up == nullptr) return Next<int(char*, size_t)>("gethostname")(name, size);
  Log("gethostname", made_up);
  snprintf(name, size, "%s", made_up);
  return 0;
}

}  // extern "C"
