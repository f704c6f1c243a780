// File: commands.h
//
// The commands of ckpt that look at state files. Each prints what it finds, complains of what keeps it from working,
// and returns the exit code.

#ifndef COHORT_TOOLS_CKPT_COMMANDS_H_
#define COHORT_TOOLS_CKPT_COMMANDS_H_

#include <string>

#include "cohort/checkpoint/state_file.h"

namespace cohort::ckpt {

int ListDirectory(const std::string& directory);
int ShowFile(const std::string& path, bool as_json);
int VerifyFile(const std::string& path);
int DiffFiles(const std::string& first, const std::string& second);

struct Conversion {
  std::string source;
  std::string target;
  StateFormat format;
  bool drop_metadata = false;  // texts that the target has no place for are left out
};
int ConvertFile(const Conversion& conversion);

}  // namespace cohort::ckpt

#endif  // COHORT_TOOLS_CKPT_COMMANDS_H_
