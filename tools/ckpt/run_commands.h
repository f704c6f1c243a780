// File: run_commands.h
//
// The commands of ckpt that look at the directories of runs (docs/checkpoints.md). As those in commands.h; no LibTorch.

#ifndef COHORT_TOOLS_CKPT_RUN_COMMANDS_H_
#define COHORT_TOOLS_CKPT_RUN_COMMANDS_H_

#include <string>

#include "cohort/checkpoint/retention.h"

namespace cohort::ckpt {

enum class DirectoryKind {
  kRun,         // it holds run.json, the lock of a job, or a directory named "step_..."
  kCheckpoint,  // it holds manifest.json, or is named "step_..."
  kOther,       // or it is no directory
};
DirectoryKind KindOf(const std::string& path);

// `policy` may be empty; if not, the list says what it does not keep.
int ListRun(const std::string& path, const RetentionPolicy& policy);
int VerifyRun(const std::string& path);
int VerifyOneCheckpoint(const std::string& path);
int PrintLatest(const std::string& path);
int Prune(const std::string& path, const RetentionPolicy& policy, bool dry_run);

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_RUN_COMMANDS_H_
