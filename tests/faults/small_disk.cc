#include "cohort/tests/faults/small_disk.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "cohort/checkpoint/testing/files.h"

namespace cohort::testing {
namespace {

bool Write(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

}  // namespace

bool MountSmallDisk(const std::string& directory, int64_t num_bytes) {
  // A mount is allowed to the root of a user namespace of our own.
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && Write("/proc/self/setgroups", "deny") &&
         Write("/proc/self/uid_map", absl::StrCat("0 ", uid, " 1")) &&
         Write("/proc/self/gid_map", absl::StrCat("0 ", gid, " 1")) &&
         mount("none", directory.c_str(), "tmpfs", 0, absl::StrCat("size=", num_bytes).c_str()) == 0;
}

std::string FreshDirectoryInMemory() {
  static const std::string* const top = [] {
    auto* directory = new std::string(FreshDirectory());
    (void)MountSmallDisk(*directory, int64_t{1} << 30);
    return directory;
  }();
  static int number = 0;
  const std::string directory = absl::StrCat(*top, "/", ++number);
  std::filesystem::create_directory(directory);
  return directory;
}

}  // namespace cohort::testing
