#include "cohort/tools/launch/proc_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cohort/tools/launch/unique_fd.h"

namespace cohort::launch {

std::optional<ProcStat> ReadProcStat(pid_t pid) {
  const UniqueFd file(open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  // The fields in front of those that are read take a hundred bytes, and the kernel gives all in one call.
  char text[1024];
  const ssize_t size = file ? read(file.get(), text, sizeof(text) - 1) : 0;
  if (size <= 0) return std::nullopt;
  text[size] = '\0';
  // The second field is the program's name in parentheses, and may hold anything: spaces, parentheses, numbers.
  const char* const name_end = strrchr(text, ')');
  ProcStat stat;
  if (name_end == nullptr ||
      sscanf(name_end, ") %*c %d %d %*d %*d %d %u", &stat.ppid, &stat.pgrp, &stat.tpgid, &stat.flags) != 4) {
    return std::nullopt;
  }
  return stat;
}

}  // namespace cohort::launch
