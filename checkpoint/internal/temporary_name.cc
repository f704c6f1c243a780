#include "cohort/checkpoint/internal/temporary_name.h"

#include <sys/random.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_format.h"

namespace cohort::internal {

std::string TemporaryPrefix(std::string_view kind) {
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char* c = host; *c != '\0'; ++c) hash = (hash ^ static_cast<unsigned char>(*c)) * 0x100000001b3;
  return absl::StrFormat("%s%s-%016x-", kHiddenPrefix, kind, hash);
}

std::string TemporaryName(std::string_view kind) {
  uint64_t random = 0;
  // Should it fail, the name is less random; whoever makes something still never takes a name that exists.
  [[maybe_unused]] const ssize_t size = getrandom(&random, sizeof(random), 0);
  return absl::StrFormat("%s%d-%016x", TemporaryPrefix(kind), getpid(), random);
}

}  // namespace cohort::internal
