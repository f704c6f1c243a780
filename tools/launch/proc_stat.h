// File: proc_stat.h
//
// What the kernel says about a process in /proc/PID/stat.

#ifndef COHORT_TOOLS_LAUNCH_PROC_STAT_H_
#define COHORT_TOOLS_LAUNCH_PROC_STAT_H_

#include <sys/types.h>

#include <optional>

namespace cohort::launch {

// The fields of proc(5) that are of use here, by their names there.
struct ProcStat {
  pid_t ppid = 0;
  pid_t pgrp = 0;
  // The process group in the foreground of the terminal that the process was started at; -1 without one.
  pid_t tpgid = -1;
  // PF_... of linux/sched.h.
  unsigned flags = 0;
};

// Local, does not block. nullopt if there is no process `pid`, or what is said about it cannot be read.
std::optional<ProcStat> ReadProcStat(pid_t pid);

}  // namespace cohort::launch

#endif  // COHORT_TOOLS_LAUNCH_PROC_STAT_H_
