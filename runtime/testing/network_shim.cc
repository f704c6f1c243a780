// LD_PRELOAD library for tests. Each of these if it is set:
//
//   NETWORK_SHIM_LOG           writes down what the process asks of names and sockets in this file, one line a call
//   NETWORK_SHIM_HOSTNAME      the machine's own name
//   NETWORK_SHIM_ADDRESS       "NAME=ADDRESS": what the resolver says about one name
//   NETWORK_SHIM_WITHOUT       "IPv4" or "IPv6": a family of which there is no address
//   NETWORK_SHIM_SIGNAL        sends the process this signal once it has sent NETWORK_SHIM_SIGNAL_AFTER bytes with
//                              writev, which is how gloo sends

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

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
  const char* known = getenv("NETWORK_SHIM_ADDRESS");
  const char* end = known == nullptr ? nullptr : strchr(known, '=');
  if (end != nullptr && node != nullptr && strlen(node) == static_cast<size_t>(end - known) &&
      strncmp(node, known, end - known) == 0) {
    node = end + 1;
  }
  return Next<int(const char*, const char*, const addrinfo*, addrinfo**)>("getaddrinfo")(node, service, hints, result);
}

ssize_t writev(int fd, const iovec* parts, int num_parts) {
  static std::atomic<long> num_sent = 0;
  const ssize_t size = Next<ssize_t(int, const iovec*, int)>("writev")(fd, parts, num_parts);
  const char* signal_number = getenv("NETWORK_SHIM_SIGNAL");
  if (signal_number != nullptr && size > 0 && (num_sent += size) > atol(getenv("NETWORK_SHIM_SIGNAL_AFTER"))) {
    raise(atoi(signal_number));
  }
  return size;
}

int gethostname(char* name, size_t size) {
  const char* made_up = getenv("NETWORK_SHIM_HOSTNAME");
  if (made_up == nullptr) return Next<int(char*, size_t)>("gethostname")(name, size);
  Log("gethostname", made_up);
  snprintf(name, size, "%s", made_up);
  return 0;
}

}  // extern "C"
