// LD_PRELOAD library for tests. It writes down what a process asks of names and sockets, one line a call, into the file
// NETWORK_SHIM_LOG; makes the machine's own name NETWORK_SHIM_HOSTNAME; and takes away the addresses of the family NETWORK_SHIM_WITHOUT
// ("IPv4" or "IPv6"). Each of them if it is set.

#include <dlfcn.h>
#include <errno.h>
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

const char* FamilyName(int family) { return family == AF_INET ? "IPv4" : family == AF_INET6 ? "IPv6" : ""; }

bool IsTakenAway(const sockaddr* address) {
  const char* without = getenv("NETWORK_SHIM_WITHOUT");
  return without != nullptr && strcmp(without, FamilyName(address->sa_family)) == 0;
}

using OnAddress = int(int, const sockaddr*, socklen_t);

}  // namespace

extern "C" {

int socket(int domain, int type, int protocol) {
  if (*FamilyName(domain) != 0) Log("socket", FamilyName(domain));
  return Next<int(int, int, int)>("socket")(domain, type, protocol);
}

int bind(int fd, const sockaddr* address, socklen_t size) {
  if (!IsTakenAway(address)) return Next<OnAddress>("bind")(fd, address, size);
  errno = EADDRNOTAVAIL;
  return -1;
}

int connect(int fd, const sockaddr* address, socklen_t size) {
  if (!IsTakenAway(address)) return Next<OnAddress>("connect")(fd, address, size);
  errno = EADDRNOTAVAIL;
  return -1;
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
